"""The colours by their roles, light and dark: told apart also by who sees no red or no green."""

from __future__ import annotations

LIGHT = {
    "ground": "#f4f6f8",
    "panel": "#ffffff",
    "text": "#16202b",
    "quiet": "#52606d",
    "line": "#d5dce3",
    "faint": "#aab6c2",
    "link": "#005a9c",
    "bad": "#b3261e",
    "good": "#00694d",
    "warn": "#fff4d6",
    "warn-line": "#b07d00",
    "completed": "#0072b2",
    "failed": "#c0392b",
    "retried": "#b27900",
    "buried": "#7d2a8a",
    "waiting": "#0072b2",
    "running": "#00805c",
    "p50": "#00805c",
    "p95": "#0072b2",
    "p99": "#b8480a",
    "q0": "#0072b2",
    "q1": "#c77c00",
    "q2": "#00805c",
    "q3": "#b04a86",
    "q4": "#3d95cc",
    "q5": "#c9501a",
    "q6": "#6a5acd",
    "rest": "#7a8591",
}
DARK = {
    "ground": "#0f151b",
    "panel": "#18212a",
    "text": "#e8eef4",
    "quiet": "#a3b1bf",
    "line": "#2c3945",
    "faint": "#586878",
    "link": "#7cc4ff",
    "bad": "#ff8f85",
    "good": "#5fd6ae",
    "warn": "#33290f",
    "warn-line": "#d9a520",
    "completed": "#4aa8e8",
    "failed": "#ff7f6e",
    "retried": "#e8b23c",
    "buried": "#d08ce0",
    "waiting": "#4aa8e8",
    "running": "#3fc79a",
    "p50": "#3fc79a",
    "p95": "#4aa8e8",
    "p99": "#ff9a5c",
    "q0": "#4aa8e8",
    "q1": "#f0b040",
    "q2": "#3fc79a",
    "q3": "#ec8fc2",
    "q4": "#a5d8ff",
    "q5": "#ff8a5c",
    "q6": "#b3a6ff",
    "rest": "#8b98a5",
}


def variables() -> str:
    """Both as style sheets have them: the system's choice, until the page was asked for another."""
    return (
        f":root,:root[data-theme=light]{_block(LIGHT, 'light')}"
        f"@media (prefers-color-scheme: dark){{:root:not([data-theme]){_block(DARK, 'dark')}}}"
        f":root[data-theme=dark]{_block(DARK, 'dark')}"
    )


def _block(colours: dict[str, str], scheme: str) -> str:
    lines = "".join(f"--{role}:{colour};" for role, colour in colours.items())
    return f"{{color-scheme:{scheme};{lines}}}\n"
