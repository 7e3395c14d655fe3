//! Segments of the system: what is allowed is done, and what is not is said.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use network::{
    OpenError, Segment,
    real::{Packets, Tap},
};

/// Does what the system allows; otherwise the error must name the privilege.
fn allowed<S>(opened: Result<S, OpenError>, needs: &str) -> Option<S> {
    match opened {
        Ok(segment) => Some(segment),
        Err(error) => {
            let said = error.to_string();
            assert!(matches!(error, OpenError::NoPermission { .. } | OpenError::System(..)), "{said}");
            assert!(said.contains(needs) || !matches!(error, OpenError::NoPermission { .. }), "{said}");
            eprintln!("not tried: {said}");
            None
        }
    }
}

#[test]
fn a_frame_goes_over_an_interface() {
    let open = || allowed(Packets::open("lo"), "CAP_NET_RAW");
    let (Some(near), Some(far)) = (open(), open()) else { return };
    let frame = [&[0; 12][..], &[0x88, 0xB5], format!("softndk {}", std::process::id()).as_bytes()].concat();
    near.send(&frame).expect("it is sent");
    let end = Instant::now() + Duration::from_secs(10);
    let mut seen = 0;
    while seen == 0 && Instant::now() < end {
        let count = |bytes: &[u8]| seen += u32::from(bytes == frame);
        let mut count = count;
        far.receive(Duration::from_millis(100), &mut count).expect("it works");
    }
    assert_eq!(seen, 1, "once: the outgoing copy is not received");
    assert!(near.send(&vec![0; near.longest() + 1]).is_err(), "it does not fit");
}

#[test]
fn a_tap_device_is_made_and_goes() {
    let name = format!("sndk{}", std::process::id());
    let Some(tap) = allowed(Tap::open(&name), "CAP_NET_ADMIN") else { return };
    let folder = format!("/sys/class/net/{name}");
    assert!(std::fs::exists(&folder).expect("sysfs"), "the device is there");
    tap.send(&[0xFF; 60]).expect("the device is down: it is lost");
    assert_eq!(tap.receive(Duration::from_millis(1), &mut |_| ()).expect("it works"), 0);
    drop(tap);
    assert!(!std::fs::exists(&folder).expect("sysfs"), "the device is gone");
}

#[test]
fn a_wrong_name_is_refused() {
    assert!(matches!(Packets::open("no-such-if0"), Err(OpenError::NoInterface(_))));
    for name in ["", "a name", "a/b", "a-name-that-is-too-long"] {
        assert!(matches!(Packets::open(name), Err(OpenError::Wrong(_))), "{name}");
        assert!(matches!(Tap::open(name), Err(OpenError::Wrong(_))), "{name}");
    }
}
