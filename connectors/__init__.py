"""The edges: sources that bring raw records to the agent, and the decoding of what they bring.

`base` is the contract of every source, `build` joins sources with the configuration; one module or
package a kind: `files`, `stdin`, `kafka`, `http`. `formats` turns bytes and tables into columns. The
core, the package `monitor`, imports nothing from here but in its command line and its test kit.
"""

from monitor.base.source import (
    EndOfSource,
    Raw,
    RawBlock,
    RawDamaged,
    RawMessages,
    RawPosition,
    RawSkipped,
    RawTable,
    Source,
)

__all__ = [
    "EndOfSource",
    "Raw",
    "RawBlock",
    "RawDamaged",
    "RawMessages",
    "RawPosition",
    "RawSkipped",
    "RawTable",
    "Source",
]
