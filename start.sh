#!/bin/sh
# Installs DSOCR-HW into .venv-workbench beside this file, once, and opens the workbench.

fail() {
    printf '\n%s\n' "$1" >&2
    if [ -t 0 ]; then
        printf '\nНажмите Enter. Press Enter. '
        read -r _
    fi
    exit 1
}

CDPATH='' cd -- "$(dirname -- "$0")" || exit 1
package='' editable=''
for wheel in dsocr_hw-*.whl; do
    [ -f "$wheel" ] && package=$wheel
done
[ -f pyproject.toml ] && package=. editable=--editable
[ -n "$package" ] && [ -f constraints.txt ] ||
    fail 'Рядом с start.sh нет остальных файлов DSOCR-HW. Распакуйте весь архив в одну папку.
The other files of DSOCR-HW are missing beside start.sh. Unpack the whole archive into one folder.'

# The marker is written last and says which files were installed: their checksums, sizes and names.
marker=.venv-workbench/installed.txt
stamp=$(cksum dsocr_hw-*.whl pyproject.toml constraints.txt 2>/dev/null)
if [ "$(cat "$marker" 2>/dev/null)" != "$stamp" ] || ! .venv-workbench/bin/python -c 'import dsocr' 2>/dev/null; then
    python=''
    for name in python3 python python3.14 python3.13 python3.12 python3.11; do
        # Debian has Python without ensurepip, which venv needs.
        "$name" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && python=$name && break
    done
    [ -n "$python" ] ||
        fail 'Не найден Python 3.11 или новее. Установите его и запустите start.sh ещё раз:
  Debian, Ubuntu: sudo apt install python3 python3-venv
  Fedora: sudo dnf install python3
  macOS: https://www.python.org/downloads/

Python 3.11 or newer is missing. Install it, then run start.sh again:
  Debian, Ubuntu: sudo apt install python3 python3-venv
  Fedora: sudo dnf install python3
  macOS: https://www.python.org/downloads/'
    echo 'Установка DSOCR-HW в папку .venv-workbench рядом с этим файлом. Она нужна один раз.
Требуется сеть. Обычно установка занимает одну-две минуты.

Installing DSOCR-HW into the folder .venv-workbench beside this file. This is needed once.
It uses the network and usually takes a minute or two.
'
    "$python" -m venv --clear .venv-workbench &&
        .venv-workbench/bin/python -m pip install --disable-pip-version-check \
            --constraint constraints.txt $editable "${package}[workbench,documents,heic]" &&
        echo "$stamp" >"$marker" ||
        fail 'Установка не удалась, причина указана выше. Нужны доступ к сети и право записи в эту папку.
Чтобы повторить установку, запустите start.sh ещё раз.

The installation failed for the reason above. It needs the network and write access to this folder.
Run start.sh again to retry.'
fi

# The window can install what training needs, in these versions; a path with blanks would be several for pip.
export PIP_CONSTRAINT=constraints.txt
# Not bin/dsocr: it stops working when the folder is moved or renamed.
exec .venv-workbench/bin/python -m dsocr workbench "$@"
