<#
.SYNOPSIS
    Collects what the drivers and the framework say of themselves.
.DESCRIPTION
    -Start begins a trace session, -Stop ends it and adds the system's events about the drivers and, if there is one, the last
    crash dump's name.
.PARAMETER Output
    Where the files go.
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory, ParameterSetName = 'Start')][switch] $Start,
    [Parameter(Mandatory, ParameterSetName = 'Stop')][switch] $Stop,
    [string] $Output = "$PSScriptRoot\results"
)
. "$PSScriptRoot\Common.ps1"
Assert-Administrator
New-Item $Output -ItemType Directory -Force | Out-Null
$session = 'SoftNDK'

if ($Start) {
    $trace = Join-Path $Output 'softndk.etl'
    logman.exe stop $session -ets 2>$null | Out-Null
    # TraceLogging derives a provider's identifier from its name: SoftNDK and NdkTest.
    $providers = '{5cdf31cf-3b81-5846-8cb0-47397bfbdd2b}', '{049242a1-b340-5aec-fc67-c1a2f09a6b01}'
    Invoke-Program logman.exe @('start', $session, '-ets', '-o', $trace, '-p', $providers[0], '0xffffffffffffffff', '0xff')
    Invoke-Program logman.exe @('update', $session, '-ets', '-p', $providers[1], '0xffffffffffffffff', '0xff')
    return
}

logman.exe stop $session -ets 2>$null | Out-Null
Get-WinEvent -FilterHashtable @{ LogName = 'System'; StartTime = (Get-Date).AddHours(-4) } -ErrorAction SilentlyContinue |
    Where-Object { $_.Message -match 'softndk|ndktest|bugcheck|Verifier' } |
    Format-List 'TimeCreated', 'Id', 'ProviderName', 'Message' | Out-File (Join-Path $Output 'system-events.txt')
verifier.exe /query | Out-File (Join-Path $Output 'verifier.txt')
Get-PnpDevice -ErrorAction SilentlyContinue | Where-Object { $_.Class -eq 'SoftNDK' } |
    Format-List * | Out-File (Join-Path $Output 'devices.txt')
foreach ($dump in "$env:SystemRoot\MEMORY.DMP") {
    if (Test-Path $dump) { Write-Host "crash dump: $dump, $((Get-Item $dump).LastWriteTime)" }
}
