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
    $packages = Get-WindowsDriver -Online | Where-Object { $_.OriginalFileName -match "\\$($driver.Name)\.inf$" }
    foreach ($package in $packages) {
        Invoke-Program pnputil.exe @('/delete-driver', $package.Driver, '/uninstall', '/force')
    }
    if (Get-CimInstance Win32_SystemDriver -Filter "Name='$($driver.Name)' and State='Running'") {
        throw "$($driver.Name) is still loaded"
    }
}
Write-Host 'Both drivers are gone.'
