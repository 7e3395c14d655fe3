//! A network between machines whose time is simulated, each by itself: conservative parallel simulation.
//!
//! A machine does what it has to do as long as nothing can come in that would have come before it. Then it reports when it has something to
//! do next, and what it has sent. Whatever a machine sends is under way for the network's delay at least. So when all have reported, a
//! machine may go on until the first time at which another one could do something, and that delay more. What becomes of a datagram is
//! said by a seed and by how many went the same way before, and datagrams arrive in the order of their times. So nothing depends on
//! how fast the machines are, and the same seed is the same network.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::impairment::{Impairment, Lane};

/// No time.
const NEVER: u64 = u64::MAX;

/// Datagrams and signals under way to one machine at most; others are lost.
const ROOM: usize = 1 << 16;

/// What goes from one machine to another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Content {
    /// A datagram of UDP. It goes to the machine that has the address, or to nobody.
    Datagram {
        /// From where.
        source: SocketAddr,
        /// To where.
        destination: SocketAddr,
        /// What.
        bytes: Vec<u8>,
    },
    /// A segment of TCP. As a datagram, but one that is lost is sent again, and so only late.
    Segment {
        /// From where.
        source: SocketAddr,
        /// To where.
        destination: SocketAddr,
        /// What.
        bytes: Vec<u8>,
    },
    /// A word to all other machines, which arrives after the network's delay whatever else the network does.
    Signal(String),
}

/// Something at a time: of its sending, or of its arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Timed {
    /// Microseconds since the machines were started.
    pub time: u64,
    /// What it is.
    pub content: Content,
}

/// What a machine says when it cannot go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// When it does something next, in microseconds, if nothing comes before; `None` for never.
    pub next: Option<u64>,
    /// What it has sent since it last reported, in order. Nothing earlier than the `next` that it had reported, or than what came.
    pub sent: Vec<Timed>,
}

/// What it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// The time before which nothing comes but what has come now, in microseconds; `None` if nothing will come any more.
    pub until: Option<u64>,
    /// What has come, in order. Nothing later than `until`, nor earlier than the last `until`.
    pub came: Vec<Timed>,
}

/// The way from a machine to the network.
pub trait Exchange: Send {
    /// Reports, and waits until the machine may go on. `None` if it may not: the run is over.
    fn exchange(&mut self, report: Report) -> Option<Grant>;
}

/// A machine, as the network sees it.
struct Machine {
    addresses: Vec<IpAddr>,
    stands: Stands,
    /// What is under way to it: by the time of its arrival, by whom it is from, and by its number.
    under_way: BTreeMap<(u64, usize, u64), Content>,
}

/// Where a machine stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// It goes on, and will report.
    Runs,
    /// It waits, and does nothing before.
    Waits(u64),
    /// It is not there any more.
    Ended,
}

impl Machine {
    /// Before this time it sends nothing, unless something comes that is not under way yet. `None` if it never will.
    fn earliest(&self) -> Option<u64> {
        let Stands::Waits(next) = self.stands else { return None };
        let first = self.under_way.first_key_value().map_or(NEVER, |((time, ..), _)| *time);
        Some(next.min(first))
    }
}

/// What happens next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// These machines go on.
    Go(Vec<(usize, Grant)>),
    /// No machine has anything left to do, and nothing is under way: these wait for ever. They go on to say so.
    Stuck(Vec<usize>),
    /// There is no machine any more.
    Over,
}

/// The network.
pub struct Lockstep {
    machines: Vec<Machine>,
    lanes: Vec<Lane>,
    /// How long everything is under way at least, in microseconds.
    delay: u64,
    number: u64,
}

impl Lockstep {
    /// A network between machines with these addresses. A datagram that it changes is lost, for its checksum is wrong; a delay below a
    /// microsecond is one.
    #[must_use]
    pub fn new(addresses: Vec<Vec<IpAddr>>, impairment: Impairment, seed: u64) -> Self {
        let delay = impairment.delay.max(Duration::from_micros(1));
        let lost = impairment.lost.saturating_add(impairment.changed);
        let impairment = Impairment { lost, changed: 0, delay, ..impairment };
        let ways = (addresses.len() * addresses.len()) as u64;
        let lanes = (1..=ways).map(|way| Lane::new(impairment, seed ^ way << 32)).collect();
        let machines = addresses.into_iter().map(|addresses| Machine {
            addresses,
            stands: Stands::Runs,
            under_way: BTreeMap::new(),
        });
        let delay = u64::try_from(delay.as_micros()).unwrap_or(NEVER);
        Self { machines: machines.collect(), lanes, delay, number: 0 }
    }

    /// A machine has reported.
    pub fn report(&mut self, machine: usize, report: Report) {
        for Timed { time, content } in report.sent {
            match content {
                Content::Signal(_) => {
                    for to in (0..self.machines.len()).filter(|to| *to != machine) {
                        self.put(to, machine, time.saturating_add(self.delay), content.clone());
                    }
                }
                Content::Datagram { destination, .. } | Content::Segment { destination, .. } => {
                    let is_there = |other: &Machine| other.addresses.contains(&destination.ip());
                    let Some(to) = self.machines.iter().position(is_there) else { continue };
                    let lane = &mut self.lanes[machine * self.machines.len() + to];
                    // What it is made of is here; the lane says when it arrives, and how often.
                    let arrivals = match content {
                        Content::Segment { .. } => lane.carry(time, 1),
                        _ => lane.once(time, 1),
                    };
                    for arrival in arrivals {
                        self.put(to, machine, arrival, content.clone());
                    }
                }
            }
        }
        self.machines[machine].stands = Stands::Waits(report.next.unwrap_or(NEVER));
    }

    /// A machine is not there any more. What is under way to it is lost; what it has sent before was reported.
    pub fn end(&mut self, machine: usize) {
        self.machines[machine].stands = Stands::Ended;
        self.machines[machine].under_way.clear();
    }

    /// Returns true if the machine goes on at this time, and will report.
    #[must_use]
    pub fn runs(&self, machine: usize) -> bool {
        self.machines[machine].stands == Stands::Runs
    }

    fn put(&mut self, to: usize, from: usize, arrival: u64, content: Content) {
        let machine = &mut self.machines[to];
        if machine.stands != Stands::Ended && machine.under_way.len() < ROOM {
            self.number += 1;
            machine.under_way.insert((arrival, from, self.number), content);
        }
    }

    /// What happens next, when each machine that is there has reported. One at least goes on, unless all are stuck.
    pub fn go_on(&mut self) -> Next {
        let earliest: Vec<(usize, u64)> = self
            .machines
            .iter()
            .enumerate()
            .filter_map(|(index, machine)| Some((index, machine.earliest()?)))
            .collect();
        if earliest.is_empty() {
            return Next::Over;
        }
        if earliest.iter().all(|(_, time)| *time == NEVER) {
            let stuck = earliest.into_iter().map(|(index, _)| index).collect::<Vec<_>>();
            for &index in &stuck {
                self.machines[index].stands = Stands::Runs;
            }
            return Next::Stuck(stuck);
        }
        let mut grants = Vec::new();
        for &(index, own) in &earliest {
            let others = earliest.iter().filter(|(other, _)| *other != index).map(|(_, time)| *time).min();
            // Another one does something of its own accord, or because this one has sent something.
            let until =
                others.map_or(NEVER, |other| other.min(own.saturating_add(self.delay)).saturating_add(self.delay));
            let machine = &mut self.machines[index];
            let Stands::Waits(next) = machine.stands else { continue };
            let later = machine.under_way.split_off(&(until, 0, 0));
            let came = std::mem::replace(&mut machine.under_way, later);
            if came.is_empty() && until <= next {
                continue;
            }
            let came = came.into_iter().map(|((time, ..), content)| Timed { time, content }).collect();
            machine.stands = Stands::Runs;
            grants.push((index, Grant { until: (until != NEVER).then_some(until), came }));
        }
        Next::Go(grants)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

    use rand_xoshiro::{
        SplitMix64,
        rand_core::{Rng, SeedableRng},
    };

    use super::{Content, Grant, Lockstep, Next, Report, Timed};
    use crate::impairment::Impairment;

    const DELAY: u64 = 20;

    fn address(machine: usize) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, u8::try_from(machine).expect("a small number") + 1], 4789))
    }

    fn network(machines: usize, impairment: Impairment, seed: u64) -> Lockstep {
        let addresses = (0..machines).map(|machine| vec![address(machine).ip()]).collect();
        Lockstep::new(addresses, Impairment { delay: Duration::from_micros(DELAY), ..impairment }, seed)
    }

    fn datagram(from: usize, to: usize, time: u64, byte: u8) -> Timed {
        let content = Content::Datagram { source: address(from), destination: address(to), bytes: vec![byte] };
        Timed { time, content }
    }

    fn waits(next: Option<u64>) -> Report {
        Report { next, sent: Vec::new() }
    }

    #[test]
    fn a_machine_goes_on_until_the_other_could_reach_it() {
        let mut network = network(2, Impairment::default(), 1);
        network.report(0, waits(Some(100)));
        network.report(1, waits(Some(130)));
        // The first may cause something at 120 on the other, which then comes back at 140. The other would have to wait until 120.
        let grant = Grant { until: Some(140), came: Vec::new() };
        assert_eq!(network.go_on(), Next::Go(vec![(0, grant)]));
        assert!(network.runs(0) && !network.runs(1));
        network.report(0, Report { next: Some(1000), sent: vec![datagram(0, 1, 135, 7)] });
        let grant = Grant { until: Some(170), came: vec![Timed { time: 155, ..datagram(0, 1, 0, 7) }] };
        assert_eq!(network.go_on(), Next::Go(vec![(1, grant)]));
    }

    #[test]
    fn a_segment_that_is_lost_comes_later() {
        let mut network = network(2, Impairment { lost: 500_000, ..Impairment::default() }, 1);
        let segment = |number: u8| {
            let content = Content::Segment { source: address(0), destination: address(1), bytes: vec![number] };
            Timed { time: 0, content }
        };
        network.report(0, Report { next: None, sent: (0..100).map(segment).collect() });
        let mut came = Vec::new();
        network.report(1, waits(None));
        while let Next::Go(grants) = network.go_on() {
            for (machine, grant) in grants {
                came.extend(grant.came);
                network.report(machine, waits(None));
            }
        }
        assert_eq!(came.len(), 100, "all of them");
        assert!(came[0].time == DELAY && came[99].time > 300_000, "{came:?}");
    }

    #[test]
    fn machines_with_nothing_to_do_are_stuck_when_nothing_is_under_way() {
        let mut network = network(3, Impairment::default(), 1);
        network
            .report(0, Report { next: None, sent: vec![Timed { time: 5, content: Content::Signal("x".to_owned()) }] });
        network.report(1, waits(None));
        network.end(2);
        let Next::Go(grants) = network.go_on() else { panic!("a signal is under way") };
        assert_eq!(grants.iter().map(|(machine, _)| *machine).collect::<Vec<_>>(), [1]);
        assert_eq!(grants[0].1.came.len(), 1);
        network.report(1, waits(None));
        assert_eq!(network.go_on(), Next::Stuck(vec![0, 1]));
        network.end(0);
        network.end(1);
        assert_eq!(network.go_on(), Next::Over);
    }

    #[test]
    fn who_is_left_alone_goes_on_without_end() {
        let mut network = network(2, Impairment::default(), 1);
        network.report(0, waits(Some(3)));
        network.end(1);
        assert_eq!(network.go_on(), Next::Go(vec![(0, Grant { until: None, came: Vec::new() })]));
    }

    /// A machine of a test, which sends at random times, and answers.
    struct Toy {
        random: SplitMix64,
        now: u64,
        until: u64,
        next: u64,
        sent: Vec<Timed>,
        inbox: BTreeMap<(u64, usize), u8>,
        log: Vec<(u64, u8)>,
    }

    impl Toy {
        /// Goes on as far as it may, and reports.
        fn run(&mut self, me: usize, machines: usize, grant: Grant) -> Report {
            for (number, Timed { time, content }) in grant.came.into_iter().enumerate() {
                let Content::Datagram { bytes, .. } = content else { panic!("only datagrams here") };
                assert!(time >= self.until, "what comes at {time} was excluded until {}", self.until);
                assert!(grant.until.is_none_or(|until| time < until));
                self.inbox.insert((time, number), bytes[0]);
            }
            self.until = grant.until.unwrap_or(u64::MAX);
            loop {
                let first = self.inbox.first_key_value().map_or(u64::MAX, |((time, _), _)| *time);
                let at = first.min(self.next);
                if at >= self.until || at > 20_000 {
                    let next = (at <= 20_000).then_some(at);
                    return Report { next, sent: std::mem::take(&mut self.sent) };
                }
                assert!(at >= self.now, "time goes on");
                self.now = at;
                let to = (me + 1 + usize::try_from(self.random.next_u64() % (machines as u64 - 1)).expect("small"))
                    % machines;
                let byte = self.random.next_u64().to_le_bytes()[0];
                if first == at {
                    let ((time, _), byte) = self.inbox.pop_first().expect("it is there");
                    self.log.push((time, byte));
                } else {
                    self.next = at + 1 + self.random.next_u64() % 300;
                }
                if byte < 200 {
                    self.sent.push(datagram(me, to, at, byte));
                }
            }
        }
    }

    /// What each machine of three has received, when they are asked in an order that the second seed says.
    fn logs(seed: u64, order: u64) -> Vec<Vec<(u64, u8)>> {
        let impairment = Impairment {
            lost: 100_000,
            doubled: 100_000,
            late: 200_000,
            lateness: Duration::from_micros(150),
            ..Impairment::default()
        };
        let mut network = network(3, impairment, seed);
        let mut toys: Vec<_> = (0..3)
            .map(|me| Toy {
                random: SplitMix64::seed_from_u64(seed ^ me << 8),
                now: 0,
                until: 0,
                next: 1 + me,
                sent: Vec::new(),
                inbox: BTreeMap::new(),
                log: Vec::new(),
            })
            .collect();
        let mut order = SplitMix64::seed_from_u64(order);
        for (me, toy) in toys.iter().enumerate() {
            network.report(me, waits(Some(toy.next)));
        }
        loop {
            match network.go_on() {
                Next::Go(mut grants) => {
                    assert!(!grants.is_empty(), "somebody goes on");
                    let by = usize::try_from(order.next_u64() % grants.len() as u64).expect("small");
                    grants.rotate_left(by);
                    for (me, grant) in grants {
                        let report = toys[me].run(me, 3, grant);
                        network.report(me, report);
                    }
                }
                Next::Stuck(all) => {
                    assert_eq!(all, [0, 1, 2]);
                    return toys.into_iter().map(|toy| toy.log).collect();
                }
                Next::Over => panic!("nobody has ended"),
            }
        }
    }

    #[test]
    fn nothing_comes_too_late_and_a_seed_repeats() {
        for seed in 1..=20 {
            let once = logs(seed, 1);
            assert!(once.iter().all(|log| log.len() > 50), "they have heard of each other");
            assert_eq!(once, logs(seed, 2), "seed {seed}");
            assert_ne!(once, logs(seed + 100, 1));
        }
    }
}
