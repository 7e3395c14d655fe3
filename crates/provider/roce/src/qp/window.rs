//! The congestion window: how many packets may be on their way (RoCEv2 9).
//!
//! It shrinks by half on a loss and grows by one when a whole window has arrived, so that go-back-N does not melt on a lossy link.

/// A number of packets.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    packets: u32,
    most: u32,
    /// Packets that have arrived since the window grew.
    arrived: u32,
}

const FIRST: u32 = 32;

impl Window {
    /// A window that never gets larger than `most`.
    pub const fn new(most: u32) -> Self {
        let packets = if FIRST < most { FIRST } else { most };
        Self { packets, most, arrived: 0 }
    }

    /// How many packets may be on their way.
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// So many packets have arrived.
    pub fn arrived(&mut self, packets: u32) {
        self.arrived += packets;
        while self.arrived >= self.packets && self.packets < self.most {
            self.arrived -= self.packets;
            self.packets += 1;
        }
        self.arrived = self.arrived.min(self.packets);
    }

    /// A packet was lost.
    pub fn lost(&mut self) {
        self.packets = (self.packets / 2).max(1);
        self.arrived = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_halves_on_a_loss_and_grows_by_one_for_each_window() {
        let mut window = Window::new(64);
        assert_eq!(window.packets(), 32);
        window.lost();
        assert_eq!(window.packets(), 16);
        window.arrived(15);
        assert_eq!(window.packets(), 16);
        window.arrived(1);
        assert_eq!(window.packets(), 17);
        window.arrived(100_000);
        assert_eq!(window.packets(), 64);
        for _ in 0..10 {
            window.lost();
        }
        assert_eq!(window.packets(), 1, "one packet may always go");
    }
}
