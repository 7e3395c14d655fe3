<#
.SYNOPSIS
    Makes a Hyper-V machine for test-signed drivers. Run on the host, elevated.
.DESCRIPTION
    Generation 2, four processors, a TPM (which Windows 11 asks for), Secure Boot off (which test signing asks for), no automatic
    checkpoints. Start it with Start-VM and install Windows.
.PARAMETER Iso
    The installation medium.
.PARAMETER Name
    The name of the machine.
.PARAMETER Disk
    The file for its disk.
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory)][string] $Iso,
    [string] $Name = 'softndk',
    [string] $Disk = "$Name.vhdx"
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

New-VM -Name $Name -Generation 2 -MemoryStartupBytes 4GB -NewVHDPath $Disk -NewVHDSizeBytes 64GB | Out-Null
Set-VMProcessor $Name -Count 4
Set-VMFirmware $Name -EnableSecureBoot Off
# A key that only this host has: enough for a machine that stays here.
Set-VMKeyProtector $Name -NewLocalKeyProtector
Enable-VMTPM $Name
Set-VM $Name -AutomaticCheckpointsEnabled $false
$medium = Add-VMDvdDrive $Name -Path $Iso -Passthru
Set-VMFirmware $Name -FirstBootDevice $medium
Write-Host "Start-VM $Name"
