package limiter

// NewDefaultCache is for the conformance suite, which cannot be imported by tests
// inside this package.
var NewDefaultCache = newDefaultCache
