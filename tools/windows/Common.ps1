# What the other scripts share. Dot-sourced by them; not run by itself.

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$Drivers = @(
    @{ Name = 'softndk'; HardwareId = 'Root\SoftNDK' }
    @{ Name = 'ndktest'; HardwareId = 'Root\NdkTest' }
)

# The NIC has scripts of its own: it is a network adapter, not a device of the class SoftNDK.
$NicHardwareId = 'Root\SoftNdkNic'

# The adapters of the NIC driver, in the order of their numbers.
function Get-Nic {
    Get-NetAdapter -ErrorAction SilentlyContinue | Where-Object { $_.DriverFileName -eq 'softndknic.sys' } | Sort-Object ifIndex
}

# Takes a driver's packages away, and fails if the driver stays loaded.
function Remove-DriverPackage {
    param([Parameter(Mandatory)][string] $Name)
    $packages = Get-WindowsDriver -Online | Where-Object { $_.OriginalFileName -match "\\$Name\.inf$" }
    foreach ($package in $packages) {
        Invoke-Program pnputil.exe @('/delete-driver', $package.Driver, '/uninstall', '/force')
    }
    if (Get-CimInstance Win32_SystemDriver -Filter "Name='$Name' and State='Running'") {
        throw "$Name is still loaded"
    }
}

function Assert-Administrator {
    $principal = [Security.Principal.WindowsPrincipal]::new([Security.Principal.WindowsIdentity]::GetCurrent())
    if (-not $principal.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
        throw 'Run this from an elevated PowerShell.'
    }
}

# Runs a program and fails if it does.
function Invoke-Program {
    param([Parameter(Mandatory)][string] $Path, [string[]] $Arguments = @(), [int[]] $Success = @(0))
    Write-Host "> $Path $Arguments"
    & $Path @Arguments
    if ($LASTEXITCODE -notin $Success) {
        throw "$Path ended with $LASTEXITCODE"
    }
}

# devcon.exe of the Windows Driver Kit: beside the scripts, in the path, or in an installed kit.
function Find-Devcon {
    $found = @(
        Join-Path $PSScriptRoot 'devcon.exe'
        (Get-Command devcon.exe -ErrorAction SilentlyContinue).Source
        Get-ChildItem "${env:ProgramFiles(x86)}\Windows Kits\10\Tools\*\x64\devcon.exe" -ErrorAction SilentlyContinue |
            Sort-Object FullName -Descending | Select-Object -First 1 -ExpandProperty FullName
    ) | Where-Object { $_ -and (Test-Path $_) } | Select-Object -First 1
    if (-not $found) {
        throw 'devcon.exe not found: it is part of the Windows Driver Kit; copy it beside this script.'
    }
    $found
}
