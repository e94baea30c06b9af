import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr.errors import RunError
from dsocr.io.atomic import write_folder
from dsocr.runs import ReadingSettings, RunFolder, append_jsonl, cut_back, to_json, write_atomically
from dsocr.text import TextPolicy
from tests.raising import raises_code

SETTINGS = ReadingSettings(
    base="nano",
    base_revision=None,
    prompt="<image>\nПрочти.",
    resolution="tiny",
    text_policy=TextPolicy(spaces="keep"),
    generation={"max_new_tokens": 64},
)


def test_a_finished_run_opens(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    (tmp_path / "adapter").mkdir()
    assert RunFolder.open(tmp_path) == RunFolder(tmp_path)


def test_a_run_without_an_adapter_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(RunError, match="not finished") as caught:
        RunFolder.open(tmp_path)
    assert caught.value.hint == f"run `dsocr train {(tmp_path / 'config.yaml').as_posix()}` again to resume"


def test_a_folder_that_is_not_a_run_has_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"has no config\.yaml"):
        RunFolder.open(tmp_path)


def test_reading_settings_travel_with_the_adapter(tmp_path: Path) -> None:
    SETTINGS.save(tmp_path)
    assert ReadingSettings.load(tmp_path) == SETTINGS
    assert "Прочти" in (tmp_path / "reading.json").read_text(encoding="utf-8"), "a person can read the file"


def test_reading_settings_of_an_earlier_version_get_defaults_for_missing_keys(tmp_path: Path) -> None:
    earlier: dict[str, object] = {**json.loads(SETTINGS.to_json()), "text_policy": {"unicode": "NFC", "spaces": "keep"}}
    del earlier["unit"]
    earlier["lines_per_sheet"] = 1
    (tmp_path / "reading.json").write_text(to_json(earlier), encoding="utf-8")
    assert ReadingSettings.load(tmp_path) == SETTINGS


def test_reading_settings_of_an_adapter_that_reads_sheets_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "reading.json").write_text(
        to_json({**json.loads(SETTINGS.to_json()), "lines_per_sheet": "auto"}), encoding="utf-8"
    )
    with raises_code("reading-unsupported", where="reading.json"):
        ReadingSettings.load(tmp_path)


def test_marks_of_the_text_policy_round_trip(tmp_path: Path) -> None:
    policy = TextPolicy(struck="strip", struck_marks=(("{", "}"),), unclear_marks=("[...]",))
    replace(SETTINGS, text_policy=policy).save(tmp_path)
    assert ReadingSettings.load(tmp_path).text_policy == policy


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"promt": "x"}, "promt: unknown key; did you mean 'prompt'?", id="unknown key"),
        pytest.param(
            {"text_policy": {"case": "fold"}}, "text_policy.case: unknown key", id="unknown key in the policy"
        ),
        pytest.param({"text_policy": {"unicode": "NFD"}}, "must be 'NFC' or 'keep', not 'NFD'", id="unknown policy"),
        pytest.param({"prompt": None}, "prompt: must be a valid string, not null", id="wrong kind"),
    ],
)
def test_reading_settings_are_strict(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    (tmp_path / "reading.json").write_text(to_json({**json.loads(SETTINGS.to_json()), **change}), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        ReadingSettings.load(tmp_path)
    assert problem in str(caught.value)
    assert "reading.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("{}", "prompt: field required", id="missing keys"),
        pytest.param("[]", "must hold keys and values, not []", id="a list"),
        pytest.param('{"base": "na', "is not JSON", id="cut off"),
    ],
)
def test_reading_settings_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(RunError) as caught:
        ReadingSettings.from_json(text)
    assert problem in str(caught.value)


def test_missing_reading_settings_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"reading\.json: no such file"):
        ReadingSettings.load(tmp_path)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_atomically(path, "старое\n")
    write_atomically(path, "новое\n")
    assert path.read_bytes() == "новое\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_rows_are_appended_and_a_lost_loss_is_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, {"step": 1, "loss": 2.5})
    append_jsonl(path, {"step": 2, "loss": float("nan")})
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows == [{"step": 1, "loss": 2.5}, {"step": 2, "loss": None}]


def test_values_without_a_json_form_are_errors() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"cer": float("inf")})


def test_a_row_that_does_not_fit_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, {"step": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="full"):
        append_jsonl(path, {"step": 2})
    assert path.read_text(encoding="utf-8") == '{"step": 1}\n'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param('{"step": 1}\n{"step": 2}\n', '{"step": 1}\n{"step": 2}\n', id="nothing is later"),
        pytest.param('{"step": 2}\n{"step": 3}\n', '{"step": 2}\n', id="a later step"),
        pytest.param('{"step": 3}\n{"step": 2}\n', '{"step": 2}\n', id="not in order"),
        pytest.param('{"step": 1}\n{"st', '{"step": 1}\n', id="a torn last line"),
        pytest.param('{"step": 1}\n{"step": 2}', '{"step": 1}\n', id="a last line without its end"),
        pytest.param('{"step": 1}\n\0\0\0\0', '{"step": 1}\n', id="zeros after the power went off"),
        pytest.param('{"note": "é"}\n{"step": 9}\n', '{"note": "é"}\n', id="a row of no step"),
    ],
)
def test_rows_are_cut_back_to_a_step(tmp_path: Path, text: str, kept: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    cut_back(path, 2)
    assert path.read_text(encoding="utf-8") == kept


def test_a_damaged_adapter_is_not_read(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.config.write_text("", encoding="utf-8")
    write_folder(run.adapter, [("adapter_model.safetensors", b"weights")])
    assert RunFolder.open(tmp_path) == run
    (run.adapter / "adapter_model.safetensors").write_bytes(b"weightz")
    with pytest.raises(RunError, match=r"adapter: is damaged: adapter_model\.safetensors has changed"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        pytest.param("runs/a", "dsocr train runs/a/config.yaml", id="plain"),
        pytest.param("my runs/a", 'dsocr train "my runs/a/config.yaml"', id="a space in it"),
    ],
)
def test_the_command_that_resumes_can_be_copied(folder: str, command: str) -> None:
    assert RunFolder(Path(folder)).resume_command == command
