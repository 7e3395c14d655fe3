//! P.
#![no_std]
