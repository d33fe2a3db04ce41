"""What is asked of a page in the browser: no two texts on each other, nothing wider than the window, nothing that shuts out."""

from __future__ import annotations

from typing import Any

OVERLAPS = """() => {
    const seen = (e) => e.getBoundingClientRect().width > 0 && e.checkVisibility({ visibilityProperty: true });
    const boxed = (e) => {
        const range = document.createRange();
        range.selectNodeContents(e);
        const b = e.closest("svg") ? e.getBoundingClientRect() : range.getBoundingClientRect();
        const box = { e, left: b.left, right: b.right, top: b.top, bottom: b.bottom, text: e.textContent.trim() };
        for (let up = e.parentElement; up && !e.closest("svg"); up = up.parentElement) {
            if (getComputedStyle(up).overflowX === "visible") continue;  // what is scrolled out of sight lies on nothing
            const clip = up.getBoundingClientRect();
            [box.left, box.right] = [Math.max(box.left, clip.left), Math.min(box.right, clip.right)];
            [box.top, box.bottom] = [Math.max(box.top, clip.top), Math.min(box.bottom, clip.bottom)];
        }
        return box;
    };
    const found = [];
    function compare(boxes, slack) {
        boxes = boxes.filter((box) => box.right > box.left && box.bottom > box.top);
        boxes.sort((a, b) => a.top - b.top);
        boxes.forEach((a, at) => {
            for (let i = at + 1; i < boxes.length && boxes[i].top < a.bottom - slack; i += 1) {
                const b = boxes[i];
                const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const related = a.e.contains(b.e) || b.e.contains(a.e);
                if (across > slack && !related) found.push(`${a.text.slice(0, 60)} | ${b.text.slice(0, 60)}`);
            }
        });
    }
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
        const texts = [...plot.querySelectorAll("svg text")].filter((e) => !e.closest(".hoverlayer"));
        compare(texts.filter((e) => e.textContent.trim() && seen(e)).map(boxed), 2);
    }
    const names = "h1, h2, h3, h4, p, li, label, button, summary, th, td, figcaption, dt, dd, output, .steps span";
    const blocks = [...document.querySelectorAll(names)].filter((e) => e.textContent.trim() && seen(e));
    compare(blocks.filter((e) => !e.closest(".skip, svg")).map(boxed), 3);
    return found;
}"""
POINTS = """() => [...document.querySelectorAll("[data-cloud]")].map((element) =>
    element.data.filter((trace) => trace.type === "scatter3d").reduce((sum, trace) => sum + trace.x.length, 0))"""
FIRST = """() => document.querySelector('[data-cloud="invariance"]').data[0].x[0]"""
PAPER = """() => document.querySelector('[data-figure="headline"]')._fullLayout.paper_bgcolor"""
DRAWN = """() => ["canvas", ".trace", "svg path", "svg text", "[data-figure] svg", "[style]"].map(
    (found) => document.querySelectorAll(found).length)"""
FOREIGN = """() => [...document.querySelectorAll("*")].filter((e) =>
    e.matches("a:not([href^='#']), img:not([src^='data:'])") || e.getAttributeNames().some((name) => name.startsWith("on"))
    ).map((e) => e.outerHTML)"""
HOVER = """() => [...document.querySelectorAll("[data-figure]")].filter((e) => e.data.length).map((element) => {
    Plotly.Fx.hover(element, [{ curveNumber: 0, pointNumber: 0 }]);
    return [...element.querySelectorAll(".hoverlayer text")].map((e) => e.textContent).join(" ");
})"""
PLACE = """(at) => {
    const element = document.querySelector("[data-map]");
    const [box, { xaxis, yaxis }, points] = [element.getBoundingClientRect(), element._fullLayout, element.data[0]];
    return [box.left + xaxis._offset + xaxis.d2p(points.x[at]), box.top + yaxis._offset + yaxis.d2p(points.y[at])];
}"""
VIOLATIONS = """window.violations = [];
    addEventListener("securitypolicyviolation", (e) => violations.push(`${e.effectiveDirective} ${e.lineNumber}`));"""
TOO_WIDE = """() => [...document.body.querySelectorAll("*")].filter((e) => {
    const b = e.getBoundingClientRect();
    if (b.width === 0 || b.right <= innerWidth + 1 || e.closest("svg svg, .skip")) return false;
    for (let up = e.parentElement; up; up = up.parentElement) {
        if (/auto|scroll|hidden/.test(getComputedStyle(up).overflowX)) return false;
    }
    return true;
}).map((e) => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 40)}`)"""
SERIOUS = ("serious", "critical")


def serious_findings(page: Any, within: str | None = None) -> list[str]:
    """What axe-core finds fault with, of serious or critical impact: rule, and where."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, within).response["violations"]
    return [f"{one['id']}: {node['target']}" for one in found if one["impact"] in SERIOUS for node in one["nodes"]]
