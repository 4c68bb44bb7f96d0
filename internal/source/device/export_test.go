package device

// ParseCheckpoint is for the fuzzer.
var ParseCheckpoint = parseCheckpoint
