@echo off
rem Installs DSOCR-HW into .venv-workbench beside this file, once, and opens the workbench.
setlocal EnableExtensions DisableDelayedExpansion
chcp 65001 >nul
title DSOCR-HW
pushd "%~dp0"

set "PACKAGE="
set "EDITABLE="
for %%f in (dsocr_hw-*.whl) do set "PACKAGE=%%f"
if exist "pyproject.toml" set "PACKAGE=." & set "EDITABLE=--editable"
if not defined PACKAGE goto incomplete
if not exist "constraints.txt" goto incomplete

rem The marker is written last: a copy of constraints.txt, named by what was installed and its size.
for %%f in ("%PACKAGE%") do set "MARKER=.venv-workbench\%%~nf-%%~zf.txt"
fc /b "constraints.txt" "%MARKER%" >nul 2>&1
if not "%ERRORLEVEL%"=="0" goto install
".venv-workbench\Scripts\python.exe" -c "import dsocr" >nul 2>&1
if "%ERRORLEVEL%"=="0" goto start

:install
set "PYTHON="
call :try py -3
call :try python
call :try python3
if not defined PYTHON goto no_python
call :announce
%PYTHON% -m venv --clear ".venv-workbench"
if not "%ERRORLEVEL%"=="0" goto not_installed
".venv-workbench\Scripts\python.exe" -m pip install --disable-pip-version-check --constraint "constraints.txt" %EDITABLE% "%PACKAGE%[workbench,documents,heic]"
if not "%ERRORLEVEL%"=="0" goto not_installed
copy /y "constraints.txt" "%MARKER%" >nul
if not exist "%MARKER%" goto not_installed

:start
rem The window can install what training needs, in these versions; a path with blanks would be several for pip.
set "PIP_CONSTRAINT=constraints.txt"
rem Not Scripts\dsocr.exe: it stops working when the folder is moved or renamed.
".venv-workbench\Scripts\python.exe" -m dsocr workbench %*
if not "%ERRORLEVEL%"=="0" goto stopped
exit /b 0

:try
if defined PYTHON exit /b 0
%* -c "import sys; sys.exit(sys.version_info < (3, 11))" >nul 2>&1
if "%ERRORLEVEL%"=="0" set "PYTHON=%*"
exit /b 0

rem ASCII only above: cmd can lose its place in a batch file after letters that take several bytes.
:announce
echo.
echo Установка DSOCR-HW в папку .venv-workbench рядом с этим файлом. Она нужна один раз.
echo Требуется сеть. Обычно установка занимает одну-две минуты. Не закрывайте окно.
echo.
echo Installing DSOCR-HW into the folder .venv-workbench beside this file. This is needed once.
echo It uses the network and usually takes a minute or two. Keep this window open.
echo.
exit /b 0

:incomplete
echo.
echo Рядом с этим файлом нет остальных файлов DSOCR-HW.
echo Распакуйте весь архив в папку на этом компьютере и запустите Start.cmd оттуда.
echo.
echo The other files of DSOCR-HW are missing beside this file.
echo Unpack the whole archive into a folder on this computer and open Start.cmd there.
echo.
pause
exit /b 1

:no_python
echo.
echo Не найден Python 3.11 или новее. Установите его одним из двух способов:
echo   - с сайта https://www.python.org/downloads/
echo   - из Microsoft Store: найдите там Python 3.13
echo Затем запустите Start.cmd ещё раз.
echo.
echo Python 3.11 or newer is missing. Install it in one of two ways:
echo   - from https://www.python.org/downloads/
echo   - from the Microsoft Store: search for Python 3.13
echo Then open Start.cmd again.
echo.
pause
exit /b 1

:not_installed
echo.
echo Установка не удалась, причина указана выше. Нужны доступ к сети и право записи в эту папку.
echo Чтобы повторить установку, запустите Start.cmd ещё раз.
echo.
echo The installation failed for the reason above. It needs the network and write access to this folder.
echo Open Start.cmd again to retry.
echo.
pause
exit /b 1

:stopped
echo.
echo Работа DSOCR-HW прервана, причина указана выше.
echo DSOCR-HW stopped for the reason above.
echo.
pause
exit /b 1
