: << 'BATCH'
@echo off
bash "%~dp0%1"
exit /b
BATCH
exec bash "$(dirname "$0")/$1"
