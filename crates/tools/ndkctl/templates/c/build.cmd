@rem Builds build\consumer.sys with the compiler and the headers of a Windows kit: run it in the x64 prompt of Visual Studio or of an EWDK.
@echo off
setlocal
if not defined WindowsSdkDir echo WindowsSdkDir is not set: use the x64 prompt of Visual Studio with a WDK, or of an EWDK & exit /b 1
set kit=%WindowsSdkDir%
set version=%WindowsSDKVersion:\=%
if not exist "%kit%Include\%version%\km\ndkpi.h" echo the kit has no "%kit%Include\%version%\km\ndkpi.h": install the WDK of this version & exit /b 1
if not exist build mkdir build
cl /nologo /c /kernel /W4 /Zi /Zp8 /GS /guard:cf /O2 /D_AMD64_ /DAMD64 /D_WIN64 /DNTDDI_VERSION=0x0A000008 /D_WIN32_WINNT=0x0A00 ^
    /I"%kit%Include\%version%\km" /I"%kit%Include\%version%\shared" /I"%kit%Include\%version%\km\crt" ^
    /Fobuild\consumer.obj /Fdbuild\consumer.pdb consumer.c || exit /b 1
link /nologo /driver /subsystem:native /entry:GsDriverEntry /nodefaultlib /guard:cf /debug /out:build\consumer.sys build\consumer.obj ^
    /libpath:"%kit%Lib\%version%\km\x64" ntoskrnl.lib hal.lib netio.lib BufferOverflowFastFailK.lib || exit /b 1
echo build\consumer.sys
