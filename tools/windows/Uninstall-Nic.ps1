<#
.SYNOPSIS
    Removes the ends of the cable, with their addresses and routes, and the package of the NIC driver.
#>
[CmdletBinding()]
param()
. "$PSScriptRoot\Common.ps1"
Assert-Administrator
$devcon = Find-Devcon

foreach ($nic in @(Get-Nic)) {
    Get-NetNeighbor -InterfaceIndex $nic.ifIndex -State Permanent -ErrorAction SilentlyContinue |
        Remove-NetNeighbor -Confirm:$false -ErrorAction SilentlyContinue
    Get-NetRoute -InterfaceIndex $nic.ifIndex -ErrorAction SilentlyContinue | Where-Object RouteMetric -eq 0 |
        Remove-NetRoute -Confirm:$false -ErrorAction SilentlyContinue
}
Invoke-Program $devcon @('remove', $NicHardwareId)
Remove-DriverPackage 'softndknic'
Write-Host 'The NIC is gone.'
