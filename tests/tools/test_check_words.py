from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_words import check_classes, check_python, check_text, check_words, find_classes_twice, read_rules

LIST = "[definitions]\nblue\tcached\n[names]\nzog\tmessage\n[spelling]\ntwiddl\ttweak\n[text]\nby magic\tat random\n"


def found(text: str, tmp_path: Path, path: str = "strobe/a.py") -> list[str]:
    (tmp_path / "words.txt").write_text(LIST)
    rules = read_rules(tmp_path / "words.txt")
    check = check_python(path, text, rules) if path.endswith(".py") else check_text(path, 1, text, rules)
    return [f"{finding.line} {finding.word}" for finding in check]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def blue(): ...", ["1 blue"]),
        ("class RowsBlue: ...", ["1 RowsBlue"]),
        ("blue = 1", []),  # a local variable: only [names] holds for it
        ("def f(zog): ...", ["1 zog"]),
        ("class A:\n    def f(self):\n        self.as_zog = 1", ["3 as_zog"]),
        ("azogue = 1", []),
        ("twiddler = 1", ["1 twiddler"]),
        ("x = 1  # sampled by magic", ["1 by magic"]),
        ('def f():\n    """One.\n\n    Drawn by\n    magic.\n    """', ["4 by\n    magic"]),
        ("raise ValueError(f'{x} By Magic')", ["1 By Magic"]),
        ("by_magicians = 'by magicians'", []),
    ],
)
def test_words_are_found_in_names_strings_and_comments(text: str, expected: list[str], tmp_path: Path) -> None:
    assert found(text, tmp_path) == expected


def test_tests_are_checked_for_words_in_definitions_but_not_in_variables(tmp_path: Path) -> None:
    text = "def test_what_is_zog():\n    zog = 1\n\ndef blue(): ..."
    assert found(text, tmp_path, "tests/test_a.py") == ["1 test_what_is_zog"]


def test_documents_are_checked_as_text(tmp_path: Path) -> None:
    assert found("# A\n\nRows are chosen by magic.", tmp_path, "docs/a.md") == ["3 by magic"]


@pytest.mark.parametrize("text", ["word\treplacement", "[text]\nword", "[text]\nword\t"])
def test_a_bad_line_of_the_list_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(text)
    with pytest.raises(ValueError, match=r"words\.txt:\d: expected"):
        read_rules(tmp_path / "words.txt")


def test_folders_and_root_documents_are_searched(tmp_path: Path) -> None:
    (tmp_path / "strobe/exchange").mkdir(parents=True)
    (tmp_path / "strobe/exchange/a.py").write_text("def zog(): ...\n")
    (tmp_path / "README.md").write_text("Chosen by magic.\n")
    (tmp_path / "words.txt").write_text(LIST)
    rules = read_rules(tmp_path / "words.txt")
    assert [str(each).split(": ")[0] for each in check_words(tmp_path, rules)] == [
        "README.md:1",
        "strobe/exchange/a.py:1",
    ]


def test_a_class_name_may_be_defined_once_per_axis(tmp_path: Path) -> None:
    for folder in ("store", "batching", "view"):
        (tmp_path / "strobe" / folder).mkdir(parents=True)
        (tmp_path / "strobe" / folder / "a.py").write_text("class Full: ...\nclass _Private: ...\n")
    assert len(check_classes(find_classes_twice(tmp_path))) == 1
    (tmp_path / "strobe/view/a.py").unlink()
    assert check_classes(find_classes_twice(tmp_path)) == []
    many = {f"Name{k}": ["strobe/store/a.py:1", "strobe/sync/a.py:1"] for k in range(9)}
    assert len(check_classes(many)) == 1
