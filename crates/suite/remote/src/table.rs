//! Numbers for things: a place in a table and how often it was used, so that an old number names nothing.

use alloc::vec::Vec;

use ndkpi::NtStatus;

/// More than so many are refused: a number may come from anybody.
const MOST: usize = 1 << 16;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table.
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    /// Empty.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Keeps a value, and returns its number, which is not 0.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn insert(&mut self, value: T) -> Result<u64, NtStatus> {
        let index = if let Some(index) = self.free.pop() {
            index
        } else {
            let index = self.slots.len();
            if index >= MOST {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            self.slots.try_reserve(1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
            // Room for every number that is given back.
            let missing = (index + 1).saturating_sub(self.free.len());
            self.free.try_reserve(missing).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
            self.slots.push(Slot { generation: 1, value: None });
            index as u32
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Ok(u64::from(slot.generation) << 32 | u64::from(index))
    }

    fn slot(&self, number: u64) -> Option<&Slot<T>> {
        self.slots.get(number as u32 as usize).filter(|slot| u64::from(slot.generation) == number >> 32)
    }

    /// The value of a number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.slot(number)?.value.as_ref()
    }

    /// Takes the value of a number out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let index = number as u32;
        self.slot(number)?;
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        // A place whose numbers are used up stays empty.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(index);
        }
        Some(value)
    }

    /// Returns true if nothing has a number.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Takes all values out.
    pub fn clear(&mut self) {
        for index in 0..self.slots.len() {
            let number = u64::from(self.slots[index].generation) << 32 | index as u64;
            drop(self.remove(number));
        }
    }

    /// All numbers and values.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((u64::from(slot.generation) << 32 | index as u64, slot.value.as_ref()?)))
    }
}
