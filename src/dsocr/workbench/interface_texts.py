"""Every text of the workbench's interface, in English and in Russian."""

from typing import Literal

Language = Literal["en", "ru"]

_WORDS: dict[str, tuple[str, str]] = {
    "accept": ("Accept (Enter)", "Принять (Enter)"),
    "unreadable": ("Unreadable (Alt+U)", "Неразборчиво (Alt+U)"),
    "split": ("Split here (Alt+S)", "Разделить здесь (Alt+S)"),
    "join": ("Join with next (Alt+J)", "Объединить со следующей (Alt+J)"),
    "undo": ("Undo (Alt+Z)", "Отменить (Alt+Z)"),
    "nothing_to_undo": ("Nothing to undo in this window", "В этом окне нечего отменять"),
    "undone": ("Undone", "Отменено"),
    "order_pages": ("in order", "по порядку"),
    "order_doubt": ("most doubtful first", "сначала сомнительные"),
    "page": ("Page", "Страница"),
    "line": ("Image of the line", "Изображение строки"),
    "text": ("Text of the line", "Текст строки"),
    "export": ("Export", "Экспорт"),
    "accepted_only": ("only accepted corrections", "только принятые исправления"),
    "folder": ("Output folder", "Папка для сохранения"),
    "dataset": ("training dataset", "набор данных для обучения"),
    "write": ("Save", "Сохранить"),
    "written": (
        "Saved to {out}. Pages: {pages}, lines with text: {texts}",
        "Сохранено в {out}. Страниц: {pages}, строк с текстом: {texts}",
    ),
    "train": ("Train on corrections", "Обучить на исправлениях"),
    "training": ("training: step {steps}", "обучение: шаг {steps}"),
    "trained": ("training finished: {run}", "обучение завершено: {run}"),
    "training_failed": ("training failed: {error}", "ошибка обучения: {error}"),
    "validation_cer": ("validation CER {cer}", "CER на проверочных строках: {cer}"),
    "cer": ("Model's CER so far: {cer} on {lines} lines", "CER модели: {cer} (строк: {lines})"),
    "no_cer": ("Model's CER: no lines accepted yet", "CER модели: пока нет принятых строк"),
    "counts": ("{reviewed} of {all} lines reviewed", "Проверено строк: {reviewed} из {all}"),
    "reading": ("reading: {done} of {total}", "распознавание: {done} из {total}"),
    "no_image": ("This line cannot be shown: {why}", "Строку нельзя показать: {why}"),
    "skipped": (
        "lines that could not be read for lack of an image: {lines}; the first: {first}",
        "не распознано строк без изображения: {lines}; первая: {first}",
    ),
    "reading_failed": ("reading failed: {error}", "ошибка распознавания: {error}"),
    "stale": (
        "Somebody else changed this line to “{text}”. Your text is still in the field; press Enter to keep it.",
        "Эту строку уже изменили: «{text}». Ваш текст остался в поле; нажмите Enter, чтобы оставить его.",
    ),
    "removed": ("Somebody else removed this line", "Эту строку удалил другой пользователь"),
    "all_reviewed": ("All lines are reviewed", "Все строки проверены"),
    "state_unread": ("not read", "не распознана"),
    "state_read": ("to review", "не проверена"),
    "state_accepted": ("accepted", "принята"),
    "state_unreadable": ("unreadable", "неразборчиво"),
    "view_page": ("Page", "Страница"),
    "view_pages": ("All pages", "Все страницы"),
    "view_of": ("of", "из"),
    "view_view": ("View", "Вид"),
    "view_canvas": (
        "Page: drag to move, wheel to zoom, arrow keys",
        "Страница: перетаскивание — сдвиг, колесо — масштаб, стрелки",
    ),
    "view_zoomIn": ("Zoom in (Alt +)", "Увеличить (Alt +)"),
    "view_zoomOut": ("Zoom out (Alt −)", "Уменьшить (Alt −)"),
    "view_fitPage": ("Whole page (Alt+F)", "Страница целиком (Alt+F)"),
    "view_fitLine": ("Fit the line (Alt+L)", "Строка во всю ширину (Alt+L)"),
    "view_rotate": ("Rotate (Alt+T)", "Повернуть (Alt+T)"),
    "view_invert": ("Invert colours (Alt+C)", "Негатив (Alt+C)"),
    "view_adjust": ("Contrast and brightness", "Контраст и яркость"),
    "view_contrast": ("Contrast", "Контраст"),
    "view_brightness": ("Brightness", "Яркость"),
    "view_read": ("Page and field only (Alt+V, Esc)", "Только страница и поле (Alt+V, Esc)"),
    "view_shape": ("Change shapes (Alt+E)", "Изменить разметку (Alt+E)"),
    "keys": (
        "Enter: accept. Alt+↑, Alt+↓: previous, next line.",
        "Enter — принять, Alt+↑ и Alt+↓ — перейти к соседней строке",
    ),
}


def interface_text(language: Language, name: str, **values: object) -> str:
    """The text of that name in a language, with values filled in."""
    return _WORDS[name][language == "ru"].format(**values)
