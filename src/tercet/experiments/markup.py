"""The parts of the report that stand in the page as text: summary, verdicts, settings. Everything is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tercet.experiments import choice
from tercet.experiments.stored import Records, family_place, natural, power
from tercet.experiments.summary import COUNTINGS, VERDICT_GAPS, Verdict, verdicts
from tercet.experiments.words import WITH, number, story, tallies, winners


def subtitle(records: Records) -> str:
    """How much there is, and when and with what it was made."""
    versions = records.settings.get("versions")
    started = records.settings.get("started") or records.settings.get("started_at")
    parts = [f"{len(records.runs)} runs", f"{len(records.problems)} problems"]
    if isinstance(versions, dict) and "tercet" in versions:
        parts.append(f"tercet {versions['tercet']}")
    return ", ".join([*parts, *([f"started {started}"] if started else [])])


def summary_html(records: Records) -> str:
    """Which method to use, or of the paper's experiment whether its claim holds; escaped."""
    told = story(records) if records.paper else choice.story(records)
    tables = (tallies_html, winners_html) if records.paper else (standings_html, cheapest_html)
    parts = [
        f'<p class="lead">{escape(told.lead)}</p>',
        bullets(told.findings, "found"),
        *(table(records) for table in tables),
    ]
    if told.notes:
        notes = bullets(told.notes, "notes")
        parts.append(f'<details class="note" open><summary>Before trusting a number</summary>{notes}</details>')
    return "\n".join(parts)


def standings_html(records: Records) -> str:
    """What each method costs beside the cheapest."""
    rows, to = choice.rows(records), f"To a gap of {power(choice.GAP)}"
    head = ("Method", "Runs that got there", "Certified ends", "Seconds over the least", "Evaluations over the fewest")
    return text_table(f"{to}, over all problems (geometric mean)", head, rows) if rows else ""


def cheapest_html(records: Records) -> str:
    """The cheapest method of every problem."""
    rows = [(f"{p.name} (n = {p.first('n')}, d = {p.first('d')})", *choice.cheapest(p)) for p in records.problems]
    head = ("Problem", "Fewest seconds", "Fewest evaluations, over n")
    return (
        text_table(f"Mean ± standard deviation over runs, to a gap of {power(choice.GAP)}", head, rows) if rows else ""
    )


def tallies_html(records: Records) -> str:
    """How often STM needed fewer calls; nothing where it was not compared."""
    rows = tallies(verdicts(records))
    title = "Oracle calls of STM against its rivals, over all problems and the gaps 1e-4, 1e-6 and 1e-10"
    return text_table(title, ("STM with", "Every product counted", "As the paper counts"), rows) if rows else ""


def winners_html(records: Records) -> str:
    """The cheapest method of every problem."""
    rows = [(f"{p.name} (n = {p.first('n')}, d = {p.first('d')})", *winners(p)) for p in records.problems]
    head = ("Problem", "Epochs, ours", "Epochs, the paper's", "Seconds")
    return text_table("Lowest mean cost to a gap of 1e-6, mean ± standard deviation over runs", head, rows)


def bullets(texts: list[str], kind: str) -> str:
    """A list of sentences, escaped."""
    return f'<ul class="{kind}">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>' if texts else ""


def verdicts_html(records: Records) -> str:
    """Of the paper's experiment STM against SCR and the best SGD, one table for each kind of settings."""
    found = verdicts(records) if records.paper else []
    if not found:
        return ""
    tables = [verdict_table([v for v in found if v.settings == kind], kind) for kind in ("paper", "ours")]
    return (
        '<section aria-labelledby="h-verdicts"><h2 id="h-verdicts">Does STM need fewer oracle calls?</h2>'
        '<p class="muted">Cost of STM divided by that of its rival, run by run from the same start: geometric mean, '
        "then lowest to highest. Below 1 STM is cheaper; within 5 % counts as the same. A method that was run with "
        "several choices, such as SGD, stands with the best one for each gap and counting.</p>"
        f"{''.join(tables)}</section>"
    )


def verdict_table(found: list[Verdict], kind: str) -> str:
    """One table; rows are problems and rivals, columns countings and gaps."""
    if not found:
        return ""
    cells = {(v.dataset, v.l2, v.rival, v.counting, v.gap): v for v in found}
    rows = list(dict.fromkeys((v.dataset, v.l2, v.rival) for v in found))
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(VERDICT_GAPS)}">{text}</th>'
        for text in ("every product counted (ours)", "as the paper counts")
    )
    gaps = "".join(f'<th scope="col">gap {power(gap)}</th>' for _ in COUNTINGS for gap in VERDICT_GAPS)
    body = "".join(
        f'<tr><th scope="row">{escape(f"{row[0]}, l2 = {power(row[1])}")}<br>'
        f'<span class="spread">against {escape(row[2])}</span>'
        f"</th>{''.join(verdict_cell(cells.get((*row, c, g))) for c in COUNTINGS for g in VERDICT_GAPS)}</tr>"
        for row in rows
    )
    caption = f'<caption class="hidden-text">Cost of STM over that of its rival, with {WITH[kind]}</caption>'
    top = f'<thead><tr><td></td>{groups}</tr><tr><th scope="col">Problem</th>{gaps}</tr></thead>'
    return (
        f'<h3 id="h-{kind}">With {WITH[kind]}</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="h-{kind}">'
        f"<table>{caption}{top}<tbody>{body}</tbody></table></div>"
    )


def verdict_cell(v: Verdict | None) -> str:
    """Answer, ratio and spread."""
    if v is None or not v.pairs:
        return "<td>not run</td>"
    alone = [f"only {who}: {k} of {v.pairs}" for who, k in (("STM", v.only_stm), ("rival", v.only_rival)) if k]
    words = {"fewer": "▼ fewer", "more": "▲ more", "same": "= same", "neither": "neither got there"}[v.answer]
    lines = [f"{number(v.low)} to {number(v.high)}"] if v.both > 1 else []
    lines += [", ".join(alone)] if alone else []
    lines += [f"{v.apart} of {v.pairs} measured from different minima"] if v.apart else []
    ratio = f"{number(v.ratio)} " if v.both else ""
    small = "".join(f"<small>{escape(line)}</small>" for line in lines)
    title = escape(f"{v.methods[0]} over {v.methods[1]}, {v.pairs} pairs", quote=True)
    return f'<td class="verdict" title="{title}">{ratio}<span class="spread">{words}</span>{small}</td>'


def settings_html(records: Records) -> str:
    """Methods and settings, tuned choices, data sets, failed runs, and the settings and versions of the whole."""
    methods = {run.method: run.record for problem in records.problems for run in problem.runs}
    rows = [
        (label, pairs(without(record.get("settings"), "tuned")), str(record.get("counting_note") or ""))
        for label, record in sorted(
            methods.items(), key=lambda item: (family_place(str(item[1].get("family"))), natural(item[0]))
        )
    ]
    info = records.settings.get("data_info")
    data = [(str(name), pairs(value)) for name, value in info.items()] if isinstance(info, dict) else []
    whole = without(records.settings, "format", "methods", "data_info", "paper")
    tables = (
        ("Methods and their settings", ("Method", "Settings", "Counting"), rows),
        (
            "Choices from the grids",
            ("Problem", "Chosen by the lowest mean objective on the first seeds"),
            choices(records),
        ),
        ("Data sets", ("Name", "About"), data),
        ("Failed runs", ("Problem", "Method", "Start", "Seed", "Error"), failed_runs(records)),
        ("Settings and versions", ("Key", "Value"), [(key, pairs(value)) for key, value in whole.items()]),
    )
    return "".join(table_html(title, head, body) for title, head, body in tables if body)


def choices(records: Records) -> list[tuple[str, ...]]:
    """What was chosen from the grids, one row for each problem."""
    rows = []
    for problem in records.problems:
        notes = {pairs((run.record.get("settings") or {}).get("tuned")) for run in problem.runs}
        names = [note.partition(":")[0] for note in sorted(notes) if note]
        rows.append((problem.name, "; ".join(names)))
    return [row for row in rows if row[1]]


def failed_runs(records: Records) -> list[tuple[str, ...]]:
    """Every run that failed, with its error."""
    return [
        (problem.name, run.method, *run.begins, str(run.record.get("error") or run.record.get("message") or ""))
        for problem in records.problems
        for run in problem.runs
        if run.failed
    ]


def without(settings: Any, *names: str) -> dict[str, Any]:
    """Settings that say something, less some."""
    nothing: tuple[Any, ...] = (None, "", {}, [])
    return {str(k): v for k, v in (settings or {}).items() if k not in names and v not in nothing}


def pairs(value: Any, inside: bool = False) -> str:
    """Nested settings on one line; {"class": "Fixed", "gradient": 0.05} is Fixed(gradient=0.05)."""
    if isinstance(value, dict):
        told = without(value, "class")
        text = ", ".join(f"{key}={pairs(item, True)}" for key, item in told.items())
        return f"{value.get('class', '')}({text})" if inside or "class" in value else text
    if isinstance(value, list):
        text = ", ".join(pairs(item, True) for item in value)
        return f"({text})" if inside else text
    return "" if value is None else str(value)


def table_html(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A section with a table of texts."""
    key = f"h-{title.split()[0].lower()}"
    table = text_table(title, head, rows, titled=False)
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>{table}</section>\n'


def text_table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], titled: bool = True) -> str:
    """A table of texts, escaped, that scrolls by itself where the screen is narrow.

    The caption is for screen readers: one that is seen would scroll away with the table.
    """
    top = "".join(f'<th scope="col" class="text">{escape(text)}</th>' for text in head)
    body = "".join(f"<tr>{text_row(row)}</tr>" for row in rows)
    seen = f'<p class="title" aria-hidden="true">{escape(title)}</p>' if titled else ""
    return (
        f'{seen}<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<table><caption class="hidden-text">{escape(title)}</caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def text_row(row: tuple[str, ...]) -> str:
    """The cells of a row; the first one names it."""
    cells = "".join(f'<td class="text">{escape(text)}</td>' for text in row[1:])
    return f'<th scope="row">{escape(row[0])}</th>{cells}'
