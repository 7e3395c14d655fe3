//! Adapters that have the addresses of the machine's interfaces.

use std::net::{IpAddr, SocketAddr};

use engine::connection::InterfaceAddress;
use nd2::{CompletionPolicy, abi::HRESULT};
use nd2_selftest::{Schedule, World};
use ndkpi::SOCKADDR_INET;

fn interface(address: &str) -> InterfaceAddress {
    InterfaceAddress::new(address.parse().expect("an address"), 24)
}

fn number(world: &World, address: &str) -> Result<u64, HRESULT> {
    let ip: IpAddr = address.parse().expect("an address");
    world.provider.resolve(&SOCKADDR_INET::from(SocketAddr::new(ip, 0)))
}

/// How many addresses the adapter's list has.
fn count(world: &World) -> u64 {
    let (mut room, mut length) = ([0; 64], 512);
    assert_eq!(world.adapter.addresses(&mut room, &mut length), HRESULT::ND_SUCCESS);
    room[0] & 0xFFFF_FFFF
}

#[test]
fn an_adapter_has_the_addresses_of_the_interfaces_whenever_it_is_asked() {
    let world = World::new(Schedule::Seeded(1, 0), CompletionPolicy::Inline).expect("a world");
    assert_eq!((count(&world), number(&world, "10.0.0.1")), (2, Ok(1)));
    world.platform.set_interfaces(&[interface("172.16.0.1"), interface("172.16.0.2"), interface("0.0.0.0")]);
    assert_eq!(count(&world), 2, "what cannot be an address is left out");
    assert_eq!(number(&world, "172.16.0.2"), Ok(1));
    assert_eq!(number(&world, "10.0.0.1"), Err(HRESULT::ND_INVALID_ADDRESS), "gone with its interface");

    // It can be listened at, and a listener stays when its address goes.
    let listener = world.adapter.listener(world.file).expect("a listener");
    assert_eq!(listener.bind("172.16.0.2:7000".parse().expect("an address")), HRESULT::ND_SUCCESS);
    assert_eq!(listener.listen(0), HRESULT::ND_SUCCESS);
    world.platform.set_interfaces(&[interface("172.16.0.1")]);
    assert_eq!(count(&world), 1);
    let other = world.adapter.listener(world.file).expect("a listener");
    let gone = other.bind("172.16.0.2:7001".parse().expect("an address"));
    assert_eq!(gone, HRESULT::ND_INVALID_ADDRESS);
    drop((listener, other));
    world.end().expect("nothing is left");
}
