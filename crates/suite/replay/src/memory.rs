//! Memory in place of what was registered, and the translation of tokens and addresses.

use std::{collections::HashMap, ptr};

use host::HostMdl;
use interpose::{Function, Phase};
use ndkpi::{MDL, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_SGE};
use recording::{Arguments, Element, Recording};

/// Bytes that a replay registers and maps at most, all together.
const MOST_BYTES: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// A buffer with its description. Neither moves, and both live as long as the replay.
struct Buffer {
    _bytes: Vec<u64>,
    mdl: Box<HostMdl>,
    address: u64,
}

/// Where a mapping's logical addresses are.
struct Mapping {
    room: Vec<u64>,
    /// Those of the recording.
    pages: Vec<u64>,
    is_built: bool,
}

/// What a token of the recording is here.
#[derive(Clone, Copy)]
struct Token {
    here: u32,
    /// From addresses of the recording to those of here.
    delta: u64,
    /// Addresses with it are logical ones.
    logical: bool,
}

/// All of it.
pub struct Memory {
    buffers: Vec<Buffer>,
    bytes: u64,
    /// By adapter and token.
    tokens: HashMap<(u8, u32), Token>,
    /// From the addresses of a region or window to those of here.
    deltas: HashMap<u32, u64>,
    /// By adapter and recorded address of the mapping.
    mappings: HashMap<(u8, u64), Mapping>,
    /// The pages that a mapping will be said to have had, by the record of the call that built it.
    foretold: HashMap<u64, Vec<u64>>,
    /// From logical pages of the recording to those of here.
    pages: HashMap<(u8, u64), u64>,
    /// For inline data.
    scratch: Vec<u64>,
}

/// Bytes for inline data.
const SCRATCH: usize = 1 << 16;

impl Memory {
    /// Nothing yet.
    pub fn of(recording: &Recording) -> Self {
        let (mut built, mut foretold) = (HashMap::new(), HashMap::new());
        for record in recording.records.iter().filter(|record| record.phase == Phase::Call) {
            match (&record.arguments, record.function) {
                (Arguments::BuildLam { mapping, .. }, Function::BuildLam) => {
                    built.insert((record.adapter, *mapping), record.ordinal);
                }
                // Its pages are recorded when it is released: then they are certainly there.
                (Arguments::ReleaseLam { mapping, pages }, _) => {
                    if let Some(ordinal) = built.remove(&(record.adapter, *mapping)) {
                        foretold.insert(ordinal, pages.clone());
                    }
                }
                _ => {}
            }
        }
        Self {
            buffers: Vec::new(),
            bytes: 0,
            tokens: HashMap::new(),
            deltas: HashMap::new(),
            mappings: HashMap::new(),
            foretold,
            pages: HashMap::new(),
            scratch: vec![0; SCRATCH / 8],
        }
    }

    /// A description of `length` bytes that lie in their page as those at `base` did, and the distance from there to here. Null for
    /// what was no buffer.
    ///
    /// # Errors
    ///
    /// One line, if the recording asks for too much.
    pub fn buffer(&mut self, base: u64, length: u64) -> Result<(*mut MDL, u64), String> {
        if base == 0 {
            return Ok((ptr::null_mut(), 0));
        }
        // A consumer may say more than it has; the provider compares that with the description.
        let length = length.min(MOST_BYTES);
        self.bytes += length + 2 * PAGE;
        if self.bytes > MOST_BYTES {
            return Err(format!("the recording registers more than {MOST_BYTES} bytes, which a replay has not"));
        }
        let words = usize::try_from((length + 2 * PAGE) / 8).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(words).map_err(|_| format!("no memory for {length} bytes"))?;
        bytes.resize(words, 0_u64);
        let first = bytes.as_mut_ptr().cast::<u8>();
        let start = (first.addr() as u64).next_multiple_of(PAGE) - first.addr() as u64 + base % PAGE;
        let address = first.wrapping_add(usize::try_from(start).unwrap_or(0));
        let length = usize::try_from(length).unwrap_or(0);
        let mut mdl = Box::new(HostMdl { next: ptr::null_mut(), address, length });
        let described = (&raw mut *mdl).cast();
        let here = address.expose_provenance() as u64;
        self.buffers.push(Buffer { _bytes: bytes, mdl, address: here });
        debug_assert!(self.buffers.last().is_some_and(|buffer| buffer.mdl.address.addr() as u64 == buffer.address));
        Ok((described, here.wrapping_sub(base)))
    }

    /// A region was registered over a buffer, or a window bound, or neither has addresses of here.
    pub fn set_delta(&mut self, object: u32, delta: u64) {
        self.deltas.insert(object, delta);
    }

    /// The distance from the addresses of a region or window to those of here.
    pub fn delta(&self, object: u32) -> u64 {
        self.deltas.get(&object).copied().unwrap_or(0)
    }

    /// A token of the recording is this one here, of this region or window.
    pub fn learn(&mut self, adapter: u8, recorded: u32, here: u32, object: u32) {
        let delta = self.delta(object);
        self.tokens.insert((adapter, recorded), Token { here, delta, logical: false });
    }

    /// The privileged token of a domain.
    pub fn learn_privileged(&mut self, adapter: u8, recorded: u32, here: u32) {
        self.tokens.insert((adapter, recorded), Token { here, delta: 0, logical: true });
    }

    /// An address and token of a peer's memory.
    pub fn remote(&self, adapter: u8, address: u64, token: u32) -> (u64, u32) {
        let known = self.tokens.get(&(adapter, token));
        known.map_or((address, token), |known| (address.wrapping_add(known.delta), known.here))
    }

    /// The token alone.
    pub fn token(&self, adapter: u8, token: u32) -> u32 {
        self.tokens.get(&(adapter, token)).map_or(token, |known| known.here)
    }

    /// The elements of a request; `None` if inline data is longer than there is room for.
    pub fn elements(&self, adapter: u8, elements: &[Element], inline: bool) -> Option<Vec<NDK_SGE>> {
        let mut list = Vec::with_capacity(elements.len());
        for element in elements {
            if inline {
                if element.length as usize > SCRATCH {
                    return None;
                }
                let scratch = self.scratch.as_ptr().cast_mut().cast();
                list.push(NDK_SGE::new(scratch, element.length, element.token));
                continue;
            }
            list.push(match self.tokens.get(&(adapter, element.token)) {
                Some(token) if token.logical => {
                    let address = NDK_LOGICAL_ADDRESS::from_bits(self.logical(adapter, element.address));
                    NDK_SGE::logical(address, element.length, token.here)
                }
                Some(token) => at(element.address.wrapping_add(token.delta), element.length, token.here),
                None => at(element.address, element.length, element.token),
            });
        }
        Some(list)
    }

    /// A logical address of here.
    pub fn logical(&self, adapter: u8, address: u64) -> u64 {
        let page = self.pages.get(&(adapter, address & !(PAGE - 1)));
        page.map_or(address, |page| page + address % PAGE)
    }

    /// Room for a mapping of `bytes`, and its address; null for none.
    pub fn mapping(&mut self, adapter: u8, mapping: u64, bytes: u32, ordinal: u64) -> *mut NDK_LOGICAL_ADDRESS_MAPPING {
        const MOST: u32 = 1 << 24;
        if mapping == 0 {
            return ptr::null_mut();
        }
        let pages = self.foretold.remove(&ordinal).unwrap_or_default();
        // Never less than a mapping without pages.
        let room = vec![0_u64; (bytes.min(MOST) as usize).div_ceil(8) + 3];
        let entry = self.mappings.entry((adapter, mapping)).insert_entry(Mapping { room, pages, is_built: false });
        entry.into_mut().room.as_mut_ptr().cast()
    }

    /// A mapping was built: its pages here are known.
    pub fn mapped(&mut self, adapter: u8, mapping: u64) {
        let Some(Mapping { room, pages, is_built }) = self.mappings.get_mut(&(adapter, mapping)) else { return };
        *is_built = true;
        // The number of pages, and the pages, as NDKPI 3.8 lays them out.
        let count = room.get(1).map_or(0, |word| usize::try_from(word & 0xFFFF_FFFF).unwrap_or(0));
        for (recorded, here) in pages.iter().zip(room.iter().skip(2).take(count)) {
            self.pages.insert((adapter, *recorded), *here);
        }
    }

    /// The room of a mapping that was built and is not released.
    pub fn mapped_at(&mut self, adapter: u8, mapping: u64) -> Option<*mut NDK_LOGICAL_ADDRESS_MAPPING> {
        let mapping = self.mappings.get_mut(&(adapter, mapping)).filter(|mapping| mapping.is_built)?;
        Some(mapping.room.as_mut_ptr().cast())
    }

    /// A mapping is released.
    pub fn release(&mut self, adapter: u8, mapping: u64) {
        self.mappings.remove(&(adapter, mapping));
    }
}

fn at(address: u64, length: u32, token: u32) -> NDK_SGE {
    let address = usize::try_from(address).unwrap_or(usize::MAX);
    NDK_SGE::new(ptr::with_exposed_provenance_mut(address), length, token)
}
