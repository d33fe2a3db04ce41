"""Settings of planning: the search, and the evaluation around it."""

from __future__ import annotations

from dataclasses import dataclass

from phylatent.schema.checks import as_tuples, at_least, check, choices, whole
from phylatent.schema.split import SPLITS, TEST, check_split

PLAN_PROTOCOLS = ("paper", "object", "moderate", "strict")
"""All there are, in the order of tables and pages; a task declares those that mean something there."""
POLICIES = ("model", "random", "nothing", "expert")
HISTORIES = ("executed", "recorded")
NOISES = ("white", "data")
COSTS = ("latent", "readout")
CHOICES = {
    "protocol": PLAN_PROTOCOLS,
    "policy": POLICIES,
    "split": SPLITS,
    "history": HISTORIES,
    "noise": NOISES,
    "cost": COSTS,
}
"""Setting → what it may be."""


@dataclass(frozen=True)
class PlanConfig:
    """The search and the evaluation around it; the paper's numbers. A solver's own settings live beside it."""

    protocol: tuple[str, ...] = ("paper",)
    """Which rules decide success: `paper`, `moderate`, `strict`, and `object` where a task has it."""
    policy: tuple[str, ...] = POLICIES
    """Who acts: the model, and beside it random actions, none at all, and an expert where the task has one."""
    split: str = TEST
    """Whose episodes: `test` for results, `validation` for choices."""
    pairs: int = 100
    """For each evaluation seed."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Evaluation seeds; each draws pairs of its own."""
    goal_steps: int = 25
    """Raw steps from a start to its goal in the recorded episode."""
    budget: int = 50
    """Raw steps that an episode may take."""
    solver: str = "cem"
    """How plans are searched for: by name, or the path of a file that declares a solver (planning/solvers/)."""
    horizon: int = 5
    """Blocks a plan is long."""
    receding: int = 5
    """Blocks of a plan that are executed before the next one; at most all of them."""
    shrink: bool = False
    """Whether a plan ends where the one before it meant to: each is shorter by what was executed, until one is used up. With a
    fixed horizon and short steps (`receding`) the arrival is put off every time."""
    warm: bool = False
    """Whether a plan's search starts from what the last plan had left."""
    warm_iterations: int | None = None
    """Iterations of a search that starts so. Unset: as many as of any other."""
    warm_deviation: float = 1.0
    """How far its first candidates are from there, in deviations of the data's actions."""
    noise: str = "white"
    """How candidates vary: every action by itself, or from step to step as the actions of the training data do."""
    cost: str = "latent"
    """What the search lessens: the squared distance to the goal's latent, or of the physical states that a linear map, fitted
    on training episodes, reads off the two."""
    running: float = 0.0
    """Weight of the mean cost on the way, beside the cost at a plan's end. With the end alone a plan may put off all progress
    to its last block, where only the model believes in it."""
    candidates: int = 100
    """Times `iterations`: the rollouts of the model that a search may spend, whatever the solver."""
    elites: int = 10
    """Best candidates that the next iteration is drawn around."""
    iterations: int = 10
    """Rounds of a search."""
    gradient_steps: int = 0
    """Steps down the cost's gradient from what the search has found."""
    gradient_rate: float = 0.1
    """How far a step goes, in deviations of the data's actions."""
    context: int = 3
    """Frames of history a plan may see, the present one included."""
    history: str = "executed"
    """What the first plan sees: the present frame alone (`executed`), or recorded frames before the start (`recorded`)."""
    chunk: int | None = None
    """Candidate sequences the model rolls out at once: bounds the memory. Unset: what is fastest on the device (planner.py)."""
    compile: bool = False
    """Whether torch.compile makes the rollout's code: a minute at first, for a GPU and long evaluations."""
    workers: int | None = None
    """Evaluating processes. Unset: one for each core. The numbers do not depend on it."""
    filmstrips: int = 12
    """Episodes whose frames are kept for the report."""
    video: int = 0
    """Episodes written as side-by-side videos."""
    list: str | None = None
    """A start/goal list that `plan` wrote, to be used instead of drawing one."""

    def __post_init__(self) -> None:
        as_tuples(self, "protocol", "policy", "seeds")
        at_least("plan", self, 1, "pairs", "goal_steps", "budget", "horizon", "receding", "candidates", "iterations")
        at_least("plan", self, 1, "context", "chunk", "workers", "warm_iterations")
        check(self.warm_deviation > 0, f"plan.warm_deviation is {self.warm_deviation}; it must be above 0")
        at_least("plan", self, 0, "filmstrips", "video", "gradient_steps", "gradient_rate", "running")
        at_least("plan", self, 2, "elites")
        # The default may stand above few candidates: not every solver has elites, and those that have say it themselves.
        most = max(self.candidates, PlanConfig.elites)
        check(self.elites <= most, f"plan.elites is {self.elites}, more than plan.candidates = {self.candidates}")
        check(self.receding <= self.horizon, f"plan.receding is {self.receding}, more than plan.horizon = {self.horizon}")
        for name in ("history", "noise", "cost"):
            value = getattr(self, name)
            check(value in CHOICES[name], f"plan.{name} is {value!r}; it must be one of {', '.join(CHOICES[name])}")
        choices("plan.protocol", self.protocol, PLAN_PROTOCOLS)
        choices("plan.policy", self.policy, POLICIES)
        check_split("plan", self.split)
        whole("plan.seeds", self.seeds, 0)
