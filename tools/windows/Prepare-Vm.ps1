<#
.SYNOPSIS
    Prepares a virtual machine for test-signed drivers: test signing, Driver Verifier, crash dumps, kernel debugger.
.DESCRIPTION
    Only for a machine that can be thrown away. Restart it afterwards. Undo: -Undo.
.PARAMETER Certificate
    The certificate that the drivers are signed with; it becomes trusted by the machine.
.PARAMETER DebuggerHost
    Address of the machine with the kernel debugger (KDNET). The key for the debugger is printed.
.PARAMETER NoVerifier
    Leaves Driver Verifier off.
#>
[CmdletBinding(DefaultParameterSetName = 'Prepare')]
param(
    [Parameter(ParameterSetName = 'Prepare')][string] $Certificate,
    [Parameter(ParameterSetName = 'Prepare')][string] $DebuggerHost,
    [Parameter(ParameterSetName = 'Prepare')][int] $DebuggerPort = 50000,
    [Parameter(ParameterSetName = 'Prepare')][switch] $NoVerifier,
    [Parameter(Mandatory, ParameterSetName = 'Undo')][switch] $Undo
)
. "$PSScriptRoot\Common.ps1"
Assert-Administrator

if ($Undo) {
    Invoke-Program verifier.exe @('/reset') -Success 0, 2
    Invoke-Program bcdedit.exe @('/set', 'testsigning', 'off')
    Invoke-Program bcdedit.exe @('/debug', 'off')
    Write-Host 'Restart the machine.'
    return
}

if (Get-Command Confirm-SecureBootUEFI -ErrorAction SilentlyContinue) {
    $secure = try { Confirm-SecureBootUEFI } catch { $false }
    if ($secure) {
        throw 'Secure Boot is on: test signing cannot be switched on. Switch it off in the settings of the virtual machine.'
    }
}
Invoke-Program bcdedit.exe @('/set', 'testsigning', 'on')

if ($Certificate) {
    foreach ($store in 'Root', 'TrustedPublisher') {
        Import-Certificate -FilePath $Certificate -CertStoreLocation "Cert:\LocalMachine\$store" | Out-Null
    }
}

# A whole kernel dump for every bugcheck.
Set-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\CrashControl' CrashDumpEnabled 2
Set-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\CrashControl' AlwaysKeepMemoryDump 1

if (-not $NoVerifier) {
    # The standard settings, and the rules of the framework's own verifier for these drivers.
    Invoke-Program verifier.exe (@('/standard', '/driver') + ($Drivers | ForEach-Object { "$($_.Name).sys" })) -Success 0, 2
    foreach ($driver in $Drivers) {
        $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($driver.Name)\Parameters\Wdf"
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
