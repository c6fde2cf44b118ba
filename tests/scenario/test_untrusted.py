"""What comes from outside and goes there: bounds before work, and text that only shows."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racegate.scenario.untrusted.console import PrintableConsole, line, lines
from racegate.scenario.untrusted.near import near_it, nearest
from racegate.scenario.untrusted.reading import (
    DEPTH_MAX,
    KEY_PARTS_MAX,
    ReadError,
    decode_json,
    decode_toml,
    open_text,
    read_bytes,
)
from racegate.scenario.untrusted.text import (
    MESSAGE_LENGTH_MAX,
    message,
    printable,
    printable_json,
    printable_lines,
    printable_markdown,
    quoted,
)

NASTY = "\x1b[31m\u202e[/foo] :smile: [bold]x[/bold]\x9b\r\0\udcff"
ANY_TEXT = st.text(st.characters(), max_size=40)


class TestText:
    @given(ANY_TEXT)
    def test_whatever_it_says_it_is_one_line_that_shows(self, text: str) -> None:
        assert printable(text).isprintable()
        assert printable(printable(text)) == printable(text)

    @given(st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=40))
    def test_text_that_shows_is_left(self, text: str) -> None:
        assert printable(text) == text or not text.isprintable()

    def test_what_a_terminal_acts_on_is_named(self) -> None:
        assert printable("a\x1b[31m\u202eb\n\udcff") == r"a\x1b[31m\u202eb\n\udcff"
        assert printable_lines("a\nb\x07") == "a\nb\\x07"

    @given(st.dictionaries(st.text(max_size=9), st.text(max_size=9)))
    def test_json_means_the_same(self, values: dict[str, str]) -> None:
        shown = printable_json(json.dumps(values, ensure_ascii=False))
        assert json.loads(shown) == values
        assert printable_lines(shown) == shown

    def test_half_a_character_is_json_that_everybody_reads(self) -> None:
        shown = printable_json(json.dumps("a\udcff", ensure_ascii=False))
        assert decode_json(shown.encode()) == r"a\udcff"

    def test_messages_have_an_end(self) -> None:
        assert len(message("\u202e" * 10**6)) < 2 * MESSAGE_LENGTH_MAX
        assert len(quoted("x" * 10**6)) < 300
        assert quoted(1 << 100_000) == "an integer of 100001 bits"
        assert quoted("\x1b") == r"'\x1b'"

    def test_nothing_in_markdown_but_text(self) -> None:
        shown = printable_markdown("<script>|[x](y)`z`\n")
        assert not set("<>|[]`\n") & set(shown)


class TestConsole:
    def shown(self, *what: object, width: int = 200) -> str:
        console = PrintableConsole(width=width)
        console.file = io.StringIO()
        console.print(*what)
        return console.file.getvalue()

    def test_text_is_neither_markup_nor_emoji_nor_code(self) -> None:
        assert self.shown(NASTY).rstrip() == printable(NASTY)
        assert self.shown(line((NASTY, "bold"))).rstrip() == printable(NASTY)

    def test_lines_are_made_on_purpose(self) -> None:
        assert self.shown("a\nb") == "a\\nb\n"
        assert self.shown(lines(["a", "b\n"])) == "a\nb\\n\n"

    def test_what_somebody_else_made_comes_through_it_too(self) -> None:
        from rich.panel import Panel
        from rich.text import Text

        shown = self.shown(Panel(Text("a\x1b[2J"), title=Text("\u202e")))
        assert all(map(str.isprintable, shown.split("\n")))


class TestFiles:
    def test_a_file_is_read_up_to_its_bound(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_bytes(b"12345")
        assert read_bytes(path, 5) == b"12345"
        with pytest.raises(ReadError, match="5 bytes, and at most 4"):
            read_bytes(path, 4)

    @pytest.mark.parametrize("read", [read_bytes, open_text])
    def test_what_is_no_file_is_not_opened(self, read: object, tmp_path: Path) -> None:
        assert callable(read)
        os.mkfifo(tmp_path / "pipe")
        for path, what in (
            (tmp_path / "pipe", "a pipe"),
            (tmp_path, "a folder"),
            (Path("/dev/zero"), "a device"),
            (tmp_path / "a\0b", "null byte"),
            (tmp_path / "none", "No such file"),
        ):
            with pytest.raises(ReadError, match=what):
                read(path, 100)


class TestShape:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("a = " + "[" * (DEPTH_MAX + 1), "nested more than"),
            ("a = " + "{a = " * (DEPTH_MAX + 1), "nested more than"),
            (".".join("a" * (KEY_PARTS_MAX + 1)) + " = 1", "a key of more than"),
            (" . ".join(['"a"'] * (KEY_PARTS_MAX + 1)) + " = 1", "a key of more than"),
            ("['a'" + ".'a'" * KEY_PARTS_MAX + "]", "a key of more than"),
            ("a = " + "9" * 300, "a key or number of 300"),
            ("a = 0x" + "f" * 300, "a key or number of 302"),
            ("a = '''b''''\nc." + "d." * 20 + "e = 1", "a key of more than"),
            ("a = 1979-13-99", "not TOML"),
            ("a = '", "not TOML"),
        ],
    )
    def test_a_shape_that_hurts_is_refused(self, text: str, reason: str) -> None:
        with pytest.raises(ReadError, match=reason):
            decode_toml(text)

    def test_the_same_inside_a_text_or_a_comment_is_none(self) -> None:
        inside = "[" * 500 + "." * 500 + "9" * 500
        text = f'a = "{inside}"  # {inside}\nb = \'{inside}\'\nc = """{inside}\n"x" \\""""""\n'
        found = decode_toml(text)
        assert found == {"a": inside, "b": inside, "c": f'{inside}\n"x" """'}

    def test_many_values_are_no_nesting_and_no_key(self) -> None:
        assert decode_toml("a = [" + "1.5, " * 1000 + "]\n" + "[[b]]\nc.d.e = 1\n" * 100)

    def test_unclosed_texts_are_looked_at_once(self) -> None:
        for text in ('"""\\"' * 100_000, "'''" * 99_999, "'\n" * 100_000, '"\\' * 100_000):
            with pytest.raises(ReadError):
                decode_toml(f"a = {text}")

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"[" * 100_000, "nested too deep"),
            (b'{"a": ' + b"9" * 300 + b"}", "more than 256 digits"),
            (b'"\xff"', "no UTF-8"),
            (b'"\\ud800"', "not JSON"),
            (b"{", "not JSON"),
        ],
    )
    def test_json_is_bounded_too(self, content: bytes, reason: str) -> None:
        with pytest.raises(ReadError, match=reason):
            decode_json(content)

    def test_digits_in_a_text_are_no_number(self) -> None:
        assert decode_json(b'["' + b"9" * 300 + b'"]') == ["9" * 300]


class TestNear:
    NAMES = ("d2h:valid_count", "d2h:sampled", "host:condense", "host:process")

    def test_the_nearest_comes_first(self) -> None:
        assert nearest(["condence"], self.NAMES)[0] == "host:condense"
        assert near_it("d2h:valid_counts", self.NAMES) == "; near it: d2h:valid_count"
        assert near_it("d2h:", self.NAMES) == "; near it: d2h:sampled, d2h:valid_count"
        assert near_it("a", ()) == ""

    def test_what_is_like_none_is_near_none(self) -> None:
        assert near_it("nothing", self.NAMES) == ""
        assert near_it("Z", ("A", "B")) == ""
        assert near_it("Z", ("A", "B"), share_min=0.0) == "; near it: A, B"

    def test_long_names_cost_no_more(self) -> None:
        assert nearest(["x" * 10**6, ""], ["x" * 10**6, "y"], count=1) == ["x" * 10**6]
