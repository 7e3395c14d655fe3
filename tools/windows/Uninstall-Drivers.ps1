<#
.SYNOPSIS
    Removes the devices and the driver packages.
#>
[CmdletBinding()]
param()
. "$PSScriptRoot\Common.ps1"
Assert-Administrator
$devcon = Find-Devcon

# The consumer first, so that nobody has the provider open.
$reversed = @($Drivers)
[array]::Reverse($reversed)
foreach ($driver in $reversed) {
    Invoke-Program $devcon @('remove', $driver.HardwareId)
    Remove-DriverPackage $driver.Name
}
Write-Host 'Both drivers are gone.'
