"""What a workbench says, in English and in Russian."""

from typing import Literal

Language = Literal["en", "ru"]

_WORDS: dict[str, tuple[str, str]] = {
    "accept": ("Accept (Enter)", "Принять (Enter)"),
    "unreadable": ("Unreadable (Alt+U)", "Нечитаемо (Alt+U)"),
    "part": ("Split here (Alt+S)", "Разделить здесь (Alt+S)"),
    "join": ("Join with next (Alt+J)", "Слить со следующей (Alt+J)"),
    "undo": ("Undo (Alt+Z)", "Отменить (Alt+Z)"),
    "nothing_to_undo": ("nothing was changed in this window that could be undone", "в этом окне отменять нечего"),
    "undone": ("undone", "отменено"),
    "order_pages": ("in order", "по порядку"),
    "order_doubt": ("by doubt", "по сомнению"),
    "page": ("Page", "Страница"),
    "line": ("Picture of the line", "Изображение строки"),
    "text": ("Text of the line", "Текст строки"),
    "export": ("Export", "Выгрузить"),
    "accepted_only": ("accepted lines only", "только принятые строки"),
    "folder": ("Folder to write", "Папка для записи"),
    "dataset": ("dataset to train on", "набор для обучения"),
    "write": ("Write", "Записать"),
    "written": (
        "written: {pages} pages, {texts} texts, in {out}",
        "записано: страниц {pages}, текстов {texts}, в {out}",
    ),
    "train": ("Train on corrections", "Обучить на исправлениях"),
    "training": ("training: step {steps}", "обучение: шаг {steps}"),
    "trained": ("trained: {run}", "обучено: {run}"),
    "training_failed": ("the training ended: {fault}", "обучение прервалось: {fault}"),
    "validation_cer": ("CER {cer} on lines kept for validation", "CER {cer} на отложенных строках"),
    "cer": ("CER of the machine so far: {cer} on {lines} lines", "CER машины пока: {cer}, строк {lines}"),
    "no_cer": ("CER: no line of the machine accepted yet", "CER: пока не принято ни одной строки машины"),
    "counts": ("{settled} of {all} lines settled", "решено строк: {settled} из {all}"),
    "reading": ("reading: {done} of {total}", "чтение: {done} из {total}"),
    "not_shown": ("no picture of this line: {why}", "изображения строки нет: {why}"),
    "left_out": (
        "without a picture, so not read: {lines}, the first: {first}",
        "без изображения, поэтому не прочитано строк: {lines}, первая: {first}",
    ),
    "reading_failed": ("reading ended: {fault}", "чтение прервалось: {fault}"),
    "stale": (
        "somebody changed this line meanwhile: «{text}»; your text is still in the field",
        "строку тем временем изменил кто-то другой: «{text}»; ваш текст остался в поле",
    ),
    "gone": ("somebody removed this line meanwhile", "строку тем временем кто-то удалил"),
    "all_settled": ("every line is settled", "все строки решены"),
    "state_unread": ("not read", "не прочитана"),
    "state_read": ("to be looked at", "не проверена"),
    "state_accepted": ("accepted", "принята"),
    "state_unreadable": ("unreadable", "нечитаема"),
    "keys": ("Enter accepts, Alt+↑ and Alt+↓ walk", "Enter — принять, Alt+↑ и Alt+↓ — ходить"),
}


class Speech:
    """All sentences in one language."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def __call__(self, name: str, **values: object) -> str:
        """A sentence, with values in it."""
        english, russian = _WORDS[name]
        return (russian if self.language == "ru" else english).format(**values)
