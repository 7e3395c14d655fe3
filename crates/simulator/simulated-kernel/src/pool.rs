//! The pool: blocks with a tag and an owner, between bytes that nobody may write, and poisoned when they are free.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write},
    ops::Range,
    ptr,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::{
    platform,
    report::bug_check,
    rule::Rule,
    running::{self, DriverId},
    sites,
    state::{self, lock},
};

pub use crate::platform::PAGE;

/// Addresses of the pool in all. Memory is only used where blocks are.
const ARENA: usize = 16 << 30;
/// So many bytes become usable at a time.
const COMMIT: usize = 1 << 20;
/// Bytes before and after a block that nobody may write.
const GUARD: usize = 16;
/// What guards hold.
const GUARD_BYTE: u8 = 0xA5;
/// What free memory holds.
const POISON: u8 = 0xDD;
/// Eight bytes of that.
pub const POISON_WORD: u64 = u64::from_ne_bytes([POISON; 8]);
/// What a new block holds that is not zeroed.
const FRESH: u8 = 0xCD;
/// As many free blocks of a size wait before one of them is used again.
const QUARANTINE: usize = 64;

/// The tag of `wdk-alloc`, the drivers' heap: "rust", as a debugger shows it.
pub const HEAP_TAG: u32 = u32::from_ne_bytes(*b"rust");

/// A block in use.
#[derive(Clone, Copy)]
struct Block {
    slot: usize,
    slot_size: usize,
    size: usize,
    tag: u32,
    owner: DriverId,
    number: u64,
    /// Where the driver asked for it, if that is known.
    site: usize,
}

/// A block that was given back.
#[derive(Clone, Copy)]
struct Free {
    /// The address that the driver had.
    address: usize,
    block: Block,
    /// Where the driver gave it back, if that is known.
    site: usize,
}

impl Free {
    /// What it was, for a message.
    fn in_words(&self) -> String {
        let Block { size, tag, number, site, .. } = self.block;
        let mut words = format!("block {number} of {size} bytes with the tag {}", tag_in_words(tag));
        for (what, site) in [("allocated", site), ("freed", self.site)] {
            let place = sites::site_in_words(site);
            if !place.is_empty() {
                let _ = write!(words, "; {what}{place}");
            }
        }
        words
    }
}

#[derive(Default)]
struct Pool {
    /// By the address that the driver has.
    blocks: BTreeMap<usize, Block>,
    /// Free slots by size, the longest free one first, with what was there.
    free: BTreeMap<usize, VecDeque<Free>>,
    /// The end of what was ever used.
    top: usize,
    /// As many bytes can be used.
    committed: usize,
    number: u64,
    /// The most bytes at a time.
    in_use: usize,
    most: usize,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);
static BASE: OnceLock<usize> = OnceLock::new();
static READY: AtomicBool = AtomicBool::new(false);

/// Reserves the addresses.
pub fn begin() {
    BASE.get_or_init(|| platform::reserve(ARENA, true));
    let mut pool = lock(&POOL);
    if pool.is_none() {
        *pool = Some(Pool::default());
    }
    READY.store(true, Relaxed);
}

/// Returns true if the address is one of the pool.
pub fn contains(address: usize) -> bool {
    READY.load(Relaxed) && BASE.get().is_some_and(|&base| (base..base + ARENA).contains(&address))
}

/// How far from its first address one of the pool's is.
pub fn offset_of(address: usize) -> Option<usize> {
    if contains(address) { Some(address - BASE.get()?) } else { None }
}

/// The address of the pool that is so far from its first one.
pub fn address_at(offset: usize) -> Option<usize> {
    BASE.get().map(|&base| base + offset).filter(|&address| contains(address))
}

/// Says if there is a block in use around the address; `None` if it is no address of the pool.
pub fn is_live(address: usize) -> Option<bool> {
    (contains(address) || crate::paged::contains(address)).then(|| {
        let pool = lock(&POOL);
        let block = pool.as_ref().and_then(|pool| pool.blocks.range(..=address).next_back());
        block.is_some_and(|(&start, block)| address < start + block.size.max(1))
    })
}

/// Ends the test if an address is one of memory that is free. `what` is there, in words that a place follows.
pub fn check_live(address: usize, what: fmt::Arguments<'_>) {
    if is_live(address) == Some(false) {
        bug_check(Rule::UseAfterFree, format_args!("{what} memory that is free{}", freed_in_words(address)));
    }
}

/// What was at an address that is free now, for a message: `: block 7 of ...`. Nothing if that is not known any more.
pub fn freed_in_words(address: usize) -> String {
    let around = |free: &&Free| (free.address..free.address + free.block.size.max(1)).contains(&address);
    let find = |pool: &Pool| pool.free.values().flatten().rfind(around).copied();
    // The words are made without the lock: in a driver's context they are the driver's memory.
    let free = lock(&POOL).as_ref().and_then(find);
    free.map_or_else(String::new, |free| format!(": {}", free.in_words()))
}

/// How many bytes the block in use has that begins at an address.
pub fn length_of(address: usize) -> Option<usize> {
    lock(&POOL).as_ref()?.blocks.get(&address).map(|block| block.size)
}

/// How many bytes of the block in use around an address lie behind it.
pub fn room_at(address: usize) -> Option<usize> {
    let pool = lock(&POOL);
    let (&start, block) = pool.as_ref()?.blocks.range(..=address).next_back()?;
    (start + block.size).checked_sub(address).filter(|&room| room > 0)
}

/// The number of the block in use around an address, and where it was asked for.
pub fn block_at(address: usize) -> Option<(u64, usize)> {
    let pool = lock(&POOL);
    let (&start, block) = pool.as_ref()?.blocks.range(..=address).next_back()?;
    (address < start + block.size.max(1)).then_some((block.number, block.site))
}

const fn bytes(address: usize, len: usize) -> &'static mut [u8] {
    let start = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the range lies in the arena, which is never unmapped; the callers hold the pool's lock or own the block, and
    // use the slice at once.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

impl Pool {
    fn take(&mut self, size: usize) -> Option<(usize, usize)> {
        let slot_size = slot_size(size)?;
        if let Some(queue) = self.free.get_mut(&slot_size)
            && queue.len() > QUARANTINE
        {
            let free = queue.pop_front()?;
            check_free(&free);
            return Some((free.block.slot, slot_size));
        }
        let base = *BASE.get()?;
        // Slots of whole pages begin on a page.
        let top = if slot_size >= PAGE { self.top.next_multiple_of(PAGE) } else { self.top };
        if top + slot_size > ARENA {
            return None;
        }
        self.top = top + slot_size;
        if self.top > self.committed {
            let more = (self.top - self.committed).next_multiple_of(COMMIT).min(ARENA - self.committed);
            platform::commit(base + self.committed, more);
            self.committed += more;
        }
        Some((base + top, slot_size))
    }
}

/// Slots have a few sizes, so that free ones can be used again.
fn slot_size(size: usize) -> Option<usize> {
    let whole = size.checked_add(2 * GUARD)?;
    if whole > ARENA / 4 {
        return None;
    }
    if size >= PAGE {
        return Some(whole.next_multiple_of(PAGE));
    }
    Some(if whole <= 1024 { whole.next_multiple_of(64) } else { whole.next_power_of_two() })
}

/// What a slot looks like after the block in it was freed: only the ends of long ones are looked at.
const fn poisoned(slot: usize, size: usize) -> [(usize, usize); 2] {
    const LONG: usize = 64 << 10;
    if size <= LONG { [(slot, size), (slot, 0)] } else { [(slot, LONG / 2), (slot + size - LONG / 2, LONG / 2)] }
}

fn check_free(free: &Free) {
    for (start, len) in poisoned(free.block.slot, free.block.slot_size) {
        if let Some(offset) = first_other(bytes(start, len), POISON) {
            let place = (start + offset).wrapping_sub(free.address).cast_signed();
            bug_check(Rule::UseAfterFree, format_args!("byte {place} was written of a freed {}", free.in_words()));
        }
    }
}

/// Where in `bytes` the first one is that is not `value`. Row by row: a comparison of slices is fast in any build.
fn first_other(bytes: &[u8], value: u8) -> Option<usize> {
    const ROW: usize = 512;
    let expected = [value; ROW];
    let row = bytes.chunks(ROW).position(|row| *row != expected[..row.len()])? * ROW;
    bytes[row..].iter().position(|&byte| byte != value).map(|offset| row + offset)
}

fn tag_in_words(tag: u32) -> String {
    tag.to_ne_bytes().iter().map(|&byte| if byte.is_ascii_graphic() { char::from(byte) } else { '.' }).collect()
}

/// Prints who makes the block with the number that the environment names: the number is in the message of a leak.
fn trace(number: u64) {
    static WANTED: OnceLock<Option<u64>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var("SIMULATED_KERNEL_BLOCK").ok()?.parse().ok());
    if *wanted == Some(number) {
        eprintln!("block {number}: {}", std::backtrace::Backtrace::force_capture());
    }
}

/// Bytes in use now.
pub fn in_use() -> usize {
    lock(&POOL).as_ref().map_or(0, |pool| pool.in_use)
}

/// Allocates. `None` if there is no memory.
pub fn allocate(owner: DriverId, size: usize, tag: u32, zeroed: bool) -> Option<usize> {
    // What the pool allocates for itself is not the driver's in whose context a test may call: it would come back here.
    let _nobody = running::Nobody::new();
    let mut guard = lock(&POOL);
    let pool = guard.as_mut()?;
    let (slot, slot_size) = pool.take(size)?;
    let address = if size >= PAGE { slot } else { slot + GUARD };
    pool.number += 1;
    trace(pool.number);
    pool.in_use += size;
    pool.most = pool.most.max(pool.in_use);
    pool.blocks.insert(
        address,
        Block { slot, slot_size, size, tag, owner, number: pool.number, site: running::current_site() },
    );
    drop(guard);
    bytes(slot, address - slot).fill(GUARD_BYTE);
    bytes(address, size).fill(if zeroed { 0 } else { FRESH });
    bytes(address + size, slot + slot_size - address - size).fill(GUARD_BYTE);
    Some(address)
}

/// Allocates pageable memory, which is never used again once it is free.
pub fn allocate_paged(owner: DriverId, size: usize, tag: u32) -> Option<usize> {
    let _nobody = running::Nobody::new();
    let address = crate::paged::reserve(size)?;
    let mut guard = lock(&POOL);
    let pool = guard.as_mut()?;
    pool.number += 1;
    let number = pool.number;
    pool.in_use += size;
    pool.most = pool.most.max(pool.in_use);
    pool.blocks.insert(
        address,
        Block { slot: address, slot_size: 0, size, tag, owner, number, site: running::current_site() },
    );
    drop(guard);
    Some(address)
}

/// Frees. `tag` is the one that the driver expects the block to have, if it says.
pub fn free(address: usize, tag: Option<u32>) {
    let site = running::current_site();
    let _nobody = running::Nobody::new();
    let mut guard = lock(&POOL);
    let Some(pool) = guard.as_mut() else { return };
    let Some(block) = pool.blocks.remove(&address) else {
        let freed = pool.free.values().flatten().rfind(|free| free.address == address).copied();
        drop(guard);
        if let Some(free) = freed {
            bug_check(Rule::DoubleFree, format_args!("the block at {address:#x} is free already: {}", free.in_words()));
        }
        bug_check(Rule::BadFree, format_args!("there is no block at {address:#x}"));
    };
    pool.in_use -= block.size;
    drop(guard);
    if let Some(tag) = tag.filter(|&tag| tag != 0 && tag != block.tag) {
        let (said, has) = (tag_in_words(tag), tag_in_words(block.tag));
        bug_check(Rule::PoolTag, format_args!("freed with the tag {said}, but allocated with {has}"));
    }
    let state = state::current();
    state.watching().for_each(|part| part.memory_is_to_go(&(address..address + block.size.max(1))));
    check_guards(address, &block);
    let range = address..address + block.size;
    state.watching().for_each(|part| part.memory_is_gone(&state, &range));
    if block.slot_size == 0 {
        crate::paged::release(address, block.size);
        return;
    }
    for (start, len) in poisoned(block.slot, block.slot_size) {
        bytes(start, len).fill(POISON);
    }
    let mut guard = lock(&POOL);
    if let Some(pool) = guard.as_mut() {
        let free = Free { address, block, site };
        pool.free.entry(block.slot_size).or_default().push_back(free);
    }
}

fn check_guards(address: usize, block: &Block) {
    if block.slot_size == 0 {
        return;
    }
    let end = address + block.size;
    let (before, after) = (bytes(block.slot, address - block.slot), bytes(end, block.slot + block.slot_size - end));
    let written = |guard: &[u8]| first_other(guard, GUARD_BYTE).is_some();
    let side = match (written(before), written(after)) {
        (false, false) => return,
        (true, _) => "before the beginning",
        (false, true) => "beyond the end",
    };
    let tag = tag_in_words(block.tag);
    bug_check(
        Rule::Overrun,
        format_args!("bytes {side} of a block of {} bytes with the tag {tag} were written", block.size),
    );
}

/// Checks the bytes around every block and in every free one.
pub fn check_poison() {
    let guard = lock(&POOL);
    let Some(pool) = guard.as_ref() else { return };
    for (&address, block) in &pool.blocks {
        check_guards(address, block);
    }
    pool.free.values().flatten().for_each(check_free);
}

/// Checks that a driver has freed everything.
///
/// A driver may call another one without the kernel knowing, by an interface. What the other one's heap allocates in such a
/// call is taken for the caller's. So such blocks pass to the driver that is still loaded, `heir`, if there is one.
pub fn check_leaks(owner: DriverId, name: &str, heir: Option<DriverId>) {
    if let (Some(heir), Some(pool)) = (heir, lock(&POOL).as_mut()) {
        let blocks = pool.blocks.values_mut().filter(|block| block.owner == owner && block.tag == HEAP_TAG);
        blocks.for_each(|block| block.owner = heir);
    }
    let leaked: Vec<Block> = {
        let guard = lock(&POOL);
        let blocks = guard.iter().flat_map(|pool| pool.blocks.values());
        blocks.filter(|block| block.owner == owner).copied().collect()
    };
    if let Some(first) = leaked.first() {
        let total: usize = leaked.iter().map(|block| block.size).sum();
        bug_check(
            Rule::PoolLeak,
            format_args!(
                "driver {name} left {} blocks of {total} bytes; the first has {} bytes, the tag {} and the number {}{}",
                leaked.len(),
                first.size,
                tag_in_words(first.tag),
                first.number,
                sites::site_in_words(first.site)
            ),
        );
    }
}

/// Where a block was asked for, for a message.
pub fn site_in_words(address: usize) -> String {
    let site = lock(&POOL).as_ref().and_then(|pool| pool.blocks.get(&address)).map_or(0, |block| block.site);
    sites::site_in_words(site)
}

/// The blocks in use of so many bytes or more. None if somebody holds the pool: whoever asks waits for nobody.
pub fn large_blocks(least: usize) -> Vec<Range<usize>> {
    let Ok(guard) = POOL.try_lock() else { return Vec::new() };
    let blocks = guard.iter().flat_map(|pool| &pool.blocks);
    // Pageable memory may not be there.
    let large = blocks.filter(|(_, block)| block.size >= least && block.slot_size != 0);
    large.map(|(&address, block)| address..address + block.size).collect()
}

/// The number of blocks and bytes that a driver has.
pub fn usage(owner: DriverId) -> (usize, usize) {
    let guard = lock(&POOL);
    let blocks = guard.iter().flat_map(|pool| pool.blocks.values()).filter(|block| block.owner == owner);
    blocks.fold((0, 0), |(count, size), block| (count + 1, size + block.size))
}

#[cfg(test)]
mod tests {
    use super::{Block, Free};
    use crate::running::NOBODY;

    #[test]
    fn a_block_that_is_free_says_what_it_was() {
        let tag = u32::from_ne_bytes(*b"Ndk ");
        let block = Block { slot: 0, slot_size: 64, size: 24, tag, owner: NOBODY, number: 7, site: 0 };
        let words = Free { address: 16, block, site: 0 }.in_words();
        assert_eq!(words, "block 7 of 24 bytes with the tag Ndk.", "where, only images tell");
    }
}
