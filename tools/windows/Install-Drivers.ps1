<#
.SYNOPSIS
    Installs both drivers and makes one device of each.
.PARAMETER Package
    The directory with softndk.inf, ndktest.inf and the files that they name, signed.
.PARAMETER Adapters
    How many provider adapters to make.
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory)][string] $Package,
    [ValidateRange(1, 8)][int] $Adapters = 1
)
. "$PSScriptRoot\Common.ps1"
Assert-Administrator
$devcon = Find-Devcon

foreach ($driver in $Drivers) {
    $inf = Get-ChildItem $Package -Recurse -Filter "$($driver.Name).inf" | Select-Object -First 1
    if (-not $inf) { throw "no $($driver.Name).inf in $Package" }
    Invoke-Program pnputil.exe @('/add-driver', $inf.FullName) -Success 0, 259
    $count = if ($driver.Name -eq 'softndk') { $Adapters } else { 1 }
    $present = @(Get-PnpDevice -ErrorAction SilentlyContinue | Where-Object { $_.HardwareID -contains $driver.HardwareId })
    for ($made = $present.Count; $made -lt $count; $made++) {
        Invoke-Program $devcon @('install', $inf.FullName, $driver.HardwareId)
    }
}
Get-PnpDevice | Where-Object { $_.Class -eq 'SoftNDK' } | Format-Table 'Status', 'FriendlyName', 'InstanceId'
