//! Calls and answers, as they travel.
