//go:build !race

package lockd_test

// raced reports whether the race detector is on, which takes many times as long.
const raced = false
