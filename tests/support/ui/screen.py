"""Just enough of a terminal to see what a person would: text, line feeds, and the few escapes that the display uses."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])")


class Screen:
    """Feed it output; ``lines`` is the scrollback and the screen, without trailing blank lines."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self._cells: list[list[str]] = [[]]
        self._row = self._column = 0
        self.cursor_shown = True

    @property
    def lines(self) -> list[str]:
        lines = ["".join(cells).rstrip() for cells in self._cells]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def feed(self, text: str) -> Screen:
        position = 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            assert token, f"an escape that no display should send: {text[position : position + 12]!r}"
            position = token.end()
            arguments, command, control, character = token.groups()
            if command:
                self._command(arguments, command)
            elif control == "\r":
                self._column = 0
            elif control == "\n":
                self._next_row()
            else:
                self._put(character)
        return self

    def _command(self, arguments: str, command: str) -> None:
        if command == "A":
            top = max(0, len(self._cells) - self.rows)  # the cursor cannot go up into the scrollback
            self._row = max(top, self._row - int(arguments or 1))
        elif command in "JK":
            del self._cells[self._row][self._column :]
            if command == "J":
                self._cells[self._row + 1 :] = []
        elif command in "hl" and arguments == "?25":
            self.cursor_shown = command == "h"
        else:
            assert command == "m", f"an escape that no display should send: {arguments!r}{command}"

    def _next_row(self) -> None:
        self._row, self._column = self._row + 1, 0
        while len(self._cells) <= self._row:
            self._cells.append([])

    def _put(self, character: str) -> None:
        if self._column >= self.columns:
            self._next_row()
        cells = self._cells[self._row]
        cells.extend(" " * (self._column + 1 - len(cells)))
        cells[self._column] = character
        self._column += 1
