//! The objects of the recording, as they are here.

use std::{collections::HashMap, sync::Arc};

use interpose::Function;
use ndkpi::{NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, Object};

use crate::answers::Events;

/// An object.
pub struct Entry {
    kind: NDK_OBJECT_TYPE,
    raw: *mut NDK_OBJECT_HEADER,
    is_open: bool,
}

/// Objects by their number in the recording.
#[derive(Default)]
pub struct Objects {
    entries: HashMap<u32, Entry>,
    /// In the order of their creation.
    order: Vec<u32>,
    events: HashMap<u32, Arc<Events>>,
    /// Every one of them: providers have their addresses.
    all_events: Vec<Arc<Events>>,
}

/// The type that a function creates.
pub const fn created_by(function: Function) -> Option<NDK_OBJECT_TYPE> {
    Some(match function {
        Function::CreateCq => NDK_OBJECT_TYPE::CQ,
        Function::CreatePd => NDK_OBJECT_TYPE::PD,
        Function::CreateMr => NDK_OBJECT_TYPE::MR,
        Function::CreateMw => NDK_OBJECT_TYPE::MW,
        Function::CreateSrq => NDK_OBJECT_TYPE::SRQ,
        Function::CreateQp | Function::CreateQpWithSrq => NDK_OBJECT_TYPE::QP,
        Function::CreateConnector => NDK_OBJECT_TYPE::CONNECTOR,
        Function::CreateListener => NDK_OBJECT_TYPE::LISTENER,
        Function::CreateSharedEndpoint => NDK_OBJECT_TYPE::SHARED_ENDPOINT,
        _ => return None,
    })
}

impl Objects {
    /// An object has come about.
    pub fn insert(&mut self, number: u32, kind: NDK_OBJECT_TYPE, raw: *mut NDK_OBJECT_HEADER) {
        self.entries.insert(number, Entry { kind, raw, is_open: true });
        self.order.push(number);
    }

    /// An open object of this type.
    pub fn get<T: Object>(&self, number: u32) -> Option<*mut T> {
        let entry = self.entries.get(&number)?;
        (entry.is_open && entry.kind == T::OBJECT_TYPE).then_some(entry.raw.cast())
    }

    /// An open object of any type that can be closed, which is not an adapter.
    pub fn any(&self, number: u32) -> Option<(NDK_OBJECT_TYPE, *mut NDK_OBJECT_HEADER)> {
        let entry = self.entries.get(&number)?;
        (entry.is_open && entry.kind != NDK_OBJECT_TYPE::ADAPTER).then_some((entry.kind, entry.raw))
    }

    /// The type of an object, open or closed.
    pub fn kind(&self, number: u32) -> Option<NDK_OBJECT_TYPE> {
        self.entries.get(&number).map(|entry| entry.kind)
    }

    /// Nothing is to be done with an object any more.
    pub fn close(&mut self, number: u32) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.is_open = false;
        }
    }

    /// What is open but adapters, the newest first.
    pub fn open(&self) -> Vec<u32> {
        self.order.iter().rev().copied().filter(|number| self.any(*number).is_some()).collect()
    }

    /// New events, for an object that will come about.
    pub fn new_events(&mut self) -> Arc<Events> {
        let events = Arc::new(Events::default());
        self.all_events.push(events.clone());
        events
    }

    /// The events of an object are these.
    pub fn set_events(&mut self, object: u32, events: Arc<Events>) {
        self.events.insert(object, events);
    }

    /// The events of an object.
    pub fn events(&self, object: u32) -> Option<Arc<Events>> {
        self.events.get(&object).cloned()
    }
}
