<#
.SYNOPSIS
    Installs the NIC driver, makes the two ends of a cable, and has this one machine look like two.
.DESCRIPTION
    Makes two devices Root\SoftNdkNic, names them, gives each an address, and routes each address through the other end: then
    what goes from one address of this machine to the other really goes over the cable. Prints what Windows says of their RDMA.
    Undo: Uninstall-Nic.ps1.
.PARAMETER Package
    The directory with softndknic.inf and the files that it names, signed.
.PARAMETER Names
    What the two ends are to be called.
.PARAMETER Addresses
    Their IPv4 addresses, in one network of 24 bits.
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory)][string] $Package,
    [ValidateCount(2, 2)][string[]] $Names = @('SoftNDK 1', 'SoftNDK 2'),
    [ValidateCount(2, 2)][ipaddress[]] $Addresses = @('192.168.77.11', '192.168.77.12')
)
. "$PSScriptRoot\Common.ps1"
Assert-Administrator
$devcon = Find-Devcon

$inf = Get-ChildItem $Package -Recurse -Filter softndknic.inf | Select-Object -First 1
if (-not $inf) { throw "no softndknic.inf in $Package" }
Invoke-Program pnputil.exe @('/add-driver', $inf.FullName) -Success 0, 259
while (@(Get-Nic).Count -lt 2) {
    Invoke-Program $devcon @('install', $inf.FullName, $NicHardwareId)
}

$ends = @(Get-Nic | Sort-Object ifIndex | Select-Object -First 2)
for ($end = 0; $end -lt 2; $end++) {
    $nic = $ends[$end]
    if ($nic.Name -ne $Names[$end]) { Rename-NetAdapter -Name $nic.Name -NewName $Names[$end] }
    Set-NetIPInterface -InterfaceIndex $nic.ifIndex -AddressFamily IPv4 -Dhcp Disabled
    if (-not (Get-NetIPAddress -InterfaceIndex $nic.ifIndex -IPAddress "$($Addresses[$end])" -ErrorAction SilentlyContinue)) {
        # Nobody else is on the cable: detection of duplicates would only take time.
        Set-NetIPInterface -InterfaceIndex $nic.ifIndex -AddressFamily IPv4 -DadTransmits 0
        New-NetIPAddress -InterfaceIndex $nic.ifIndex -IPAddress "$($Addresses[$end])" -PrefixLength 24 | Out-Null
    }
}

# A neighbour that nobody has to ask for, and a route to each local address through the opposite end.
for ($end = 0; $end -lt 2; $end++) {
    $nic, $peer = $ends[$end], $ends[1 - $end]
    $address = "$($Addresses[1 - $end])"
    $neighbour = @{ InterfaceIndex = $nic.ifIndex; IPAddress = $address }
    Remove-NetNeighbor @neighbour -Confirm:$false -ErrorAction SilentlyContinue
    New-NetNeighbor @neighbour -LinkLayerAddress ($peer.MacAddress -replace '-') -State Permanent | Out-Null
    $route = @{ InterfaceIndex = $nic.ifIndex; DestinationPrefix = "$address/32" }
    Remove-NetRoute @route -Confirm:$false -ErrorAction SilentlyContinue
    New-NetRoute @route -RouteMetric 0 | Out-Null
}

Get-Nic | Format-Table 'Name', 'Status', 'LinkSpeed', 'MacAddress', 'ifIndex'
Get-NetAdapterRdma -Name $Names | Format-List 'Name', 'Enabled', 'Operational', 'MaxQueuePairCount', 'MaxCompletionQueueCount',
    'MaxMemoryRegionCount', 'RdmaTechnology'
Get-NetAdapterBinding -AllBindings -ComponentID ms_rdma_ndk -ErrorAction SilentlyContinue |
    Where-Object { $_.Name -in $Names } | Format-Table 'Name', 'ComponentID', 'Enabled'
Get-SmbClientNetworkInterface -ErrorAction SilentlyContinue | Where-Object { $_.FriendlyName -in $Names } |
    Format-Table 'FriendlyName', 'RdmaCapable', 'LinkSpeed'
