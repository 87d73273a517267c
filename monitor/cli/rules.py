"""`blindsight rules`: the alert rules of a configuration, printed or written to a folder."""

from __future__ import annotations

from pathlib import Path

from monitor.base.errors import ConfigError
from monitor.config.file import load_config
from monitor.export.rules import Format, Pace, RuleSettings, paces, rendered, rule_groups


def paces_of(config: str | None) -> tuple[Pace, ...]:
    """The paces of a configuration file's tasks; that of the defaults without a file."""
    return paces(load_config(config)) if config else (Pace(),)


def rules_text(settings: RuleSettings, form: Format, out: Path | None) -> str:
    """What to print: the rules, or where they were written.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    text = rendered(rule_groups(settings), settings, form)
    if out is None:
        return text.rstrip("\n")
    target = out / form.file
    try:
        out.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--out: {target} cannot be written ({error.strerror}); give a folder that can"
        ) from error
    return f"Written: {target}"
