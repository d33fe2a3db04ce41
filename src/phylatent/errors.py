"""The two ways a command can fail on purpose: the user's mistake, and a run that could not go on."""


class PhylatentError(Exception):
    """A failure told in one sentence. Exit code 1 unless a subclass says otherwise."""

    exit_code = 1
    shared = False
    """Whether all processes of a training raise it together, so that the first one's word is enough."""


class UserError(PhylatentError):
    """Something in what the user asked for or handed in: what was found, what was expected, what to do."""

    exit_code = 2


class Interrupted(PhylatentError):
    """Ctrl-C or SIGTERM, after everything needed to go on was saved."""

    exit_code = 130
    shared = True
