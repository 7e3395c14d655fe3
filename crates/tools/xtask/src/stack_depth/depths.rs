//! How deep the stack gets below each function.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use fixedbitset::FixedBitSet;
use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

/// Ways through a circle that are gone through: with which functions behind, at which one.
const MOST_WAYS: usize = 300_000;

/// Functions with the bytes of their frames, and who goes to whom.
#[derive(Default)]
pub struct Graph {
    pub own: BTreeMap<u32, u64>,
    pub calls: BTreeMap<u32, BTreeSet<u32>>,
    pub jumps: BTreeMap<u32, BTreeSet<u32>>,
}

type Edges = BTreeMap<u32, BTreeSet<u32>>;

impl Graph {
    pub fn new(own: BTreeMap<u32, u64>) -> Self {
        Self { own, ..Self::default() }
    }

    pub fn add(&mut self, from: u32, to: u32, is_jump: bool) {
        let edges = if is_jump { &mut self.jumps } else { &mut self.calls };
        edges.entry(from).or_default().insert(to);
    }

    /// Takes out all ways from a function to some others. Returns how many there were.
    pub fn cut(&mut self, from: u32, to: &BTreeSet<u32>) -> usize {
        let edges = [&mut self.calls, &mut self.jumps].into_iter().filter_map(|edges| edges.get_mut(&from));
        edges
            .map(|edges| {
                let before = edges.len();
                edges.retain(|callee| !to.contains(callee));
                before - edges.len()
            })
            .sum()
    }

    fn edges(&self) -> Edges {
        let mut all: Edges = self.own.keys().map(|function| (*function, BTreeSet::new())).collect();
        for (from, to) in self.calls.iter().chain(&self.jumps) {
            all.entry(*from).or_default().extend(to);
        }
        all
    }

    /// What a function has on the stack with the bytes of a callee below it. Who is jumped to takes the place of who jumps.
    fn added(&self, function: u32, callee: u32, below: u64) -> u64 {
        let has = |edges: &Edges| edges.get(&function).is_some_and(|to| to.contains(&callee));
        let jumps_only = has(&self.jumps) && !has(&self.calls);
        if jumps_only { below } else { self.own[&function] + below }
    }
}

/// Functions that are on a path only so often.
#[derive(Default)]
pub struct Limits {
    /// Which limit a function has.
    pub of: BTreeMap<u32, usize>,
    pub times: Vec<u8>,
}

/// What comes after a function on the deepest path.
#[derive(Clone)]
enum Next {
    Callee(Option<u32>),
    /// In a circle: after which counts.
    Ring(usize, Counts),
}

type Counts = Vec<u8>;
/// The depth, the callee, and the counts there if it is in the circle.
type Ways = HashMap<(u32, Counts), (u64, Option<u32>, Option<Counts>)>;

/// The bytes below each function, itself included, and with which call they begin.
pub struct Depths<'a> {
    graph: &'a Graph,
    edges: Edges,
    pub depth: BTreeMap<u32, u64>,
    next: BTreeMap<u32, Next>,
    ways: Vec<Ways>,
    /// The functions that can call each other.
    pub rings: Vec<Vec<u32>>,
    /// The limits that broke a circle.
    pub used: BTreeSet<usize>,
    /// The shortest of the circles that no limit breaks, and how many functions call each other there.
    pub unbroken: Vec<(usize, Vec<u32>)>,
}

impl<'a> Depths<'a> {
    pub fn new(graph: &'a Graph, limits: Option<&'a Limits>) -> Self {
        let mut all = Self {
            graph,
            edges: graph.edges(),
            depth: BTreeMap::new(),
            next: BTreeMap::new(),
            ways: Vec::new(),
            rings: Vec::new(),
            used: BTreeSet::new(),
            unbroken: Vec::new(),
        };
        for members in components(&all.edges) {
            if let ([function], false) = (&*members, is_circle(&members, &all.edges)) {
                let (depth, callee) = all.deepest_outside(*function, &BTreeSet::new());
                all.depth.insert(*function, depth);
                all.next.insert(*function, Next::Callee(callee));
                continue;
            }
            match limits {
                Some(limits) => all.unroll(&members, limits),
                None => all.count_once(&members),
            }
            all.rings.push(members);
        }
        all
    }

    /// The functions of the deepest path from this one.
    pub fn path(&self, function: u32) -> Vec<u32> {
        let (mut found, mut function) = (Vec::new(), Some(function));
        while let Some(here) = function {
            found.push(here);
            function = match self.next[&here].clone() {
                Next::Callee(callee) => callee,
                Next::Ring(ring, counts) => self.through(ring, here, counts, &mut found),
            };
        }
        found
    }

    /// Goes on in a circle, and returns what is called outside of it.
    fn through(&self, ring: usize, mut here: u32, mut counts: Counts, found: &mut Vec<u32>) -> Option<u32> {
        loop {
            let (_, callee, then) = &self.ways[ring][&(here, counts)];
            let (Some(callee), Some(then)) = (callee, then) else { return *callee };
            found.push(*callee);
            (here, counts) = (*callee, then.clone());
        }
    }

    /// The deepest call that leaves a circle.
    fn deepest_outside(&self, function: u32, inside: &BTreeSet<u32>) -> (u64, Option<u32>) {
        let mut best = (self.graph.own[&function], None);
        for callee in self.edges[&function].difference(inside) {
            let depth = self.graph.added(function, *callee, self.depth[callee]);
            if depth > best.0 {
                best = (depth, Some(*callee));
            }
        }
        best
    }

    /// A circle without limits: the deepest path on which each member is at most once; if there are too many, all of them.
    fn count_once(&mut self, members: &[u32]) {
        let inside: BTreeSet<_> = members.iter().copied().collect();
        let mut once = Once {
            graph: self.graph,
            edges: &self.edges,
            number: members.iter().copied().zip(0..).collect(),
            deepest: members.iter().map(|member| self.deepest_outside(*member, &inside).0).collect(),
            known: HashMap::new(),
        };
        let nobody = FixedBitSet::with_capacity(members.len());
        let depths: Option<Vec<_>> = members.iter().map(|member| once.walk(*member, &nobody)).collect();
        let depths = depths.unwrap_or_else(|| {
            let frames: u64 = members.iter().map(|member| self.graph.own[member]).sum();
            let below = members.iter().flat_map(|member| self.edges[member].difference(&inside));
            let depth = frames + below.map(|callee| self.depth[callee]).max().unwrap_or(0);
            vec![depth; members.len()]
        });
        for (member, depth) in members.iter().zip(depths) {
            self.depth.insert(*member, depth);
            self.next.insert(*member, Next::Callee(None));
        }
    }

    /// A circle with limits: the deepest path on which no function is more often than its limit says.
    fn unroll(&mut self, members: &[u32], limits: &Limits) {
        let inside: BTreeSet<_> = members.iter().copied().collect();
        let unlimited: BTreeSet<_> = inside.iter().copied().filter(|member| !limits.of.contains_key(member)).collect();
        let rest: Edges = unlimited.iter().map(|member| (*member, &self.edges[member] & &unlimited)).collect();
        let left: Vec<_> = components(&rest).into_iter().filter(|ring| is_circle(ring, &rest)).collect();
        if !left.is_empty() {
            self.unbroken.extend(left.iter().map(|ring| (ring.len(), shortest_circle(ring, &rest))));
            return self.count_once(members);
        }
        let here: BTreeSet<_> = inside.iter().filter_map(|member| limits.of.get(member).copied()).collect();
        self.used.extend(&here);
        let mut unrolled = Unrolled {
            graph: self.graph,
            inside: inside.iter().map(|member| (*member, &self.edges[member] & &inside)).collect(),
            deepest: members.iter().map(|member| (*member, self.deepest_outside(*member, &inside))).collect(),
            limits,
            here: here.into_iter().collect(),
            known: HashMap::new(),
        };
        for member in members {
            // A limit of none at all would say that the function is never reached.
            let counts = unrolled.enter(*member, &vec![0; unrolled.here.len()]).unwrap_or_default();
            let depth = unrolled.walk(*member, &counts);
            self.depth.insert(*member, depth);
            self.next.insert(*member, Next::Ring(self.ways.len(), counts));
        }
        self.ways.push(unrolled.known);
    }
}

/// The walk through a circle on which each member is at most once.
struct Once<'a> {
    graph: &'a Graph,
    edges: &'a Edges,
    /// Of each member.
    number: BTreeMap<u32, usize>,
    deepest: Vec<u64>,
    known: HashMap<(u32, FixedBitSet), u64>,
}

impl Once<'_> {
    /// `None` if there are too many ways.
    fn walk(&mut self, member: u32, before: &FixedBitSet) -> Option<u64> {
        let number = self.number[&member];
        let mut behind = before.clone();
        behind.insert(number);
        let key = (member, behind);
        if let Some(depth) = self.known.get(&key) {
            return Some(*depth);
        }
        if self.known.len() >= MOST_WAYS {
            return None;
        }
        let mut best = self.deepest[number];
        for callee in &self.edges[&member] {
            if self.number.get(callee).is_some_and(|callee| !key.1.contains(*callee)) {
                let below = self.walk(*callee, &key.1)?;
                best = best.max(self.graph.added(member, *callee, below));
            }
        }
        self.known.insert(key, best);
        Some(best)
    }
}

/// The walk through a circle with limits.
struct Unrolled<'a> {
    graph: &'a Graph,
    /// The ways that stay in the circle.
    inside: Edges,
    deepest: BTreeMap<u32, (u64, Option<u32>)>,
    limits: &'a Limits,
    /// The limits of this circle: a count each.
    here: Vec<usize>,
    known: Ways,
}

impl Unrolled<'_> {
    /// The counts after this member, `None` if it has been there as often as it can be.
    fn enter(&self, member: u32, counts: &Counts) -> Option<Counts> {
        let mut counts = counts.clone();
        if let Some(limit) = self.limits.of.get(&member) {
            let place = self.here.iter().position(|here| here == limit)?;
            if counts[place] == self.limits.times[*limit] {
                return None;
            }
            counts[place] += 1;
        }
        Some(counts)
    }

    fn walk(&mut self, member: u32, counts: &Counts) -> u64 {
        let key = (member, counts.clone());
        if let Some((depth, ..)) = self.known.get(&key) {
            return *depth;
        }
        let ((mut depth, mut callee), mut best) = (self.deepest[&member], None);
        for other in self.inside[&member].clone() {
            let Some(then) = self.enter(other, counts) else { continue };
            let below = self.walk(other, &then);
            let below = self.graph.added(member, other, below);
            if below > depth {
                (depth, callee, best) = (below, Some(other), Some(then));
            }
        }
        self.known.insert(key, (depth, callee, best));
        depth
    }
}

/// The strongly connected components, each after all that it calls.
fn components(edges: &Edges) -> Vec<Vec<u32>> {
    let mut graph = DiGraphMap::<u32, ()>::new();
    for (from, to) in edges {
        graph.add_node(*from);
        for callee in to {
            graph.add_edge(*from, *callee, ());
        }
    }
    tarjan_scc(&graph)
}

fn is_circle(members: &[u32], edges: &Edges) -> bool {
    members.len() > 1 || members.iter().any(|member| edges[member].contains(member))
}

/// The shortest circle of some functions that call each other.
fn shortest_circle(members: &[u32], edges: &Edges) -> Vec<u32> {
    let from = |begin: u32| {
        let (mut ways, mut seen) = (VecDeque::from([vec![begin]]), BTreeSet::from([begin]));
        while let Some(way) = ways.pop_front() {
            let callees = &edges[way.last()?];
            if callees.contains(&begin) {
                return Some(way);
            }
            for callee in callees {
                if seen.insert(*callee) {
                    ways.push_back([&*way, &[*callee]].concat());
                }
            }
        }
        None
    };
    members.iter().filter_map(|begin| from(*begin)).min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions with the frames 1, 10, 100, 1000, ... and calls.
    fn graph(functions: u32, calls: &[(u32, u32)], jumps: &[(u32, u32)]) -> Graph {
        let mut graph = Graph::new((0..functions).map(|function| (function, 10_u64.pow(function))).collect());
        for (edges, are_jumps) in [(calls, false), (jumps, true)] {
            for (from, to) in edges {
                graph.add(*from, *to, are_jumps);
            }
        }
        graph
    }

    #[test]
    fn a_path_is_as_deep_as_its_frames_and_a_jump_leaves_none() {
        let graph = graph(4, &[(0, 1), (0, 2), (1, 3)], &[(2, 3)]);
        let depths = Depths::new(&graph, None);
        assert_eq!(depths.depth, [(0, 1011), (1, 1010), (2, 1000), (3, 1000)].into());
        assert_eq!(depths.path(0), [0, 1, 3]);
        assert!(depths.rings.is_empty());
    }

    #[test]
    fn without_limits_each_function_of_a_circle_is_there_once() {
        let graph = graph(4, &[(0, 1), (1, 2), (2, 1), (2, 2), (1, 3)], &[]);
        let depths = Depths::new(&graph, None);
        // From 2 to 1 and out to 3, each once.
        assert_eq!(depths.depth, [(0, 1011), (1, 1010), (2, 1110), (3, 1000)].into());
        assert_eq!(depths.rings.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn with_a_limit_a_function_is_there_as_often_as_that_says() {
        let graph = graph(4, &[(0, 1), (1, 2), (2, 1), (1, 3)], &[]);
        let limits = Limits { of: [(1, 0)].into(), times: vec![2] };
        let depths = Depths::new(&graph, Some(&limits));
        assert_eq!(depths.depth[&0], 1 + 10 + 100 + 10 + 1000);
        assert_eq!(depths.path(0), [0, 1, 2, 1, 3]);
        assert_eq!((depths.used, depths.unbroken), ([0].into(), vec![]));
    }

    #[test]
    fn a_circle_that_no_limit_breaks_is_named_by_its_shortest() {
        let graph = graph(4, &[(0, 1), (1, 2), (2, 3), (3, 1), (3, 2)], &[]);
        let limits = Limits { of: [(0, 0)].into(), times: vec![1] };
        let depths = Depths::new(&graph, Some(&limits));
        let [(functions, circle)] = &*depths.unbroken else { panic!("{:?}", depths.unbroken) };
        assert_eq!((*functions, circle.len()), (3, 2));
        assert_eq!(depths.depth[&0], 1111, "each is counted once");
        assert!(depths.used.is_empty());
    }
}
