//! Empty: this package exists to fetch a dependency.
