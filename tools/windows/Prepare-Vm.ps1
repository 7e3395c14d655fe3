<#
.SYNOPSIS
    Prepares a virtual machine for test-signed drivers: test signing, Driver Verifier, crash dumps, kernel debugger.
.DESCRIPTION
    Only for a machine that can be thrown away. Restart it afterwards. Undo: -Undo. The drivers, and the trust in their
    certificate, are installed by `ndkctl driver install`.
.PARAMETER DebuggerHost
    Address of the machine with the kernel debugger (KDNET). The key for the debugger is printed.
.PARAMETER NoVerifier
    Leaves Driver Verifier off.
#>
[CmdletBinding(DefaultParameterSetName = 'Prepare')]
param(
    [Parameter(ParameterSetName = 'Prepare')][string] $DebuggerHost,
    [Parameter(ParameterSetName = 'Prepare')][int] $DebuggerPort = 50000,
    [Parameter(ParameterSetName = 'Prepare')][switch] $NoVerifier,
    [Parameter(Mandatory, ParameterSetName = 'Undo')][switch] $Undo
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

# Our drivers, and NDIS: what it allocates on behalf of the NIC is verified only if it is itself.
$Verified = 'softndk.sys', 'ndktest.sys', 'softndknic.sys', 'ndis.sys'
$Services = 'softndk', 'ndktest', 'softndknic'

# Runs a program and fails if it does.
function Invoke-Program {
    param([Parameter(Mandatory)][string] $Path, [string[]] $Arguments = @(), [int[]] $Success = @(0))
    Write-Host "> $Path $Arguments"
    & $Path @Arguments
    if ($LASTEXITCODE -notin $Success) {
        throw "$Path ended with $LASTEXITCODE"
    }
}

$principal = [Security.Principal.WindowsPrincipal]::new([Security.Principal.WindowsIdentity]::GetCurrent())
if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Run this from an elevated PowerShell.'
}

# What verifier.exe ends with: 0 done, 1 failed, 2 done at the next start.
$VerifierDone = 0, 2

if ($Undo) {
    Invoke-Program verifier.exe @('/reset') -Success $VerifierDone
    Invoke-Program bcdedit.exe @('/set', 'testsigning', 'off')
    Invoke-Program bcdedit.exe @('/debug', 'off')
    Write-Host 'Restart the machine.'
    return
}

if (Get-Command Confirm-SecureBootUEFI -ErrorAction SilentlyContinue) {
    # On a machine without UEFI it throws.
    $secure = try { Confirm-SecureBootUEFI } catch { $false }
    if ($secure) {
        throw 'Secure Boot is on: test signing cannot be switched on. Switch it off in the settings of the virtual machine.'
    }
}
Invoke-Program bcdedit.exe @('/set', 'testsigning', 'on')

# A whole kernel dump for every bugcheck.
Set-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\CrashControl' CrashDumpEnabled 2
Set-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\CrashControl' AlwaysKeepMemoryDump 1

if (-not $NoVerifier) {
    # The standard settings. This replaces what was set before, so all drivers are in one command.
    Invoke-Program verifier.exe (@('/standard', '/driver') + $Verified) -Success $VerifierDone
    # What will be in force after the restart.
    $settings = verifier.exe /querysettings | Out-String
    if ($LASTEXITCODE -notin $VerifierDone) { throw "verifier /querysettings ended with $LASTEXITCODE" }
    foreach ($driver in $Verified) {
        if (-not $settings.Contains($driver)) { throw "Driver Verifier has not taken ${driver}:`n$settings" }
    }
    # The rules of the framework's own verifier.
    foreach ($service in $Services) {
        $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$service\Parameters\Wdf"
        New-Item $key -Force | Out-Null
        Set-ItemProperty $key VerifierOn 1
        Set-ItemProperty $key VerboseOn 1
    }
}

if ($DebuggerHost) {
    Invoke-Program bcdedit.exe @('/debug', 'on')
    Invoke-Program bcdedit.exe @('/dbgsettings', 'net', "hostip:$DebuggerHost", "port:$DebuggerPort")
}
Write-Host 'Restart the machine.'
