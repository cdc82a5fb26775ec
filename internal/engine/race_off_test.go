//go:build !race

package engine_test

// raced says that the race detector looks on, which takes many times as long.
const raced = false
