"""The command `blindsight rules`, which prints or writes the alert rules of a configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from monitor.base.errors import ConfigError
from monitor.config.file import load_config
from monitor.export.rules import Format, RuleSettings, paces, rendered, rule_groups


def settings_of(
    config: str | None, selector: str, runbooks: str, dashboard: str, time_scale: float
) -> RuleSettings:
    """Return the settings of the rules, from the command's options and a configuration.

    Raises
    ------
    ConfigError
        The file or an option cannot be used.
    """
    options = RuleSettings(selector, runbooks=runbooks, dashboard=dashboard, scale=time_scale)
    if config is None:
        return options
    read = load_config(config)
    return replace(options, paces=paces(read), external_url=read.export.external_url or "")


def rules_text(settings: RuleSettings, form: Format, out: Path | None) -> str:
    """Return the text of the rules.

    If `out` is not None, write the rules to a file in this folder instead, and return a sentence about the
    file. The folder is created if necessary.

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
