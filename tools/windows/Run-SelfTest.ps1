<#
.SYNOPSIS
    Runs the self-test in the kernel, with traces, and tells how it went.
.PARAMETER Ndkctl
    The program ndkctl.exe.
.PARAMETER Output
    Where traces and the report go.
.PARAMETER Arguments
    More arguments for `ndkctl selftest --driver`.
#>
[CmdletBinding()]
param(
    [string] $Ndkctl = "$PSScriptRoot\ndkctl.exe",
    [string] $Output = "$PSScriptRoot\results",
    [string[]] $Arguments = @()
)
. "$PSScriptRoot\Common.ps1"
Assert-Administrator
New-Item $Output -ItemType Directory -Force | Out-Null

& "$PSScriptRoot\Collect-Traces.ps1" -Start -Output $Output
try {
    & $Ndkctl selftest --driver @Arguments | Tee-Object (Join-Path $Output 'selftest.txt')
    $code = $LASTEXITCODE
}
finally {
    & "$PSScriptRoot\Collect-Traces.ps1" -Stop -Output $Output
}
Write-Host "ndkctl ended with $code"
exit $code
