//go:build race

package file_test

// raced tells whether the race detector is on, with which tests take many times as long.
const raced = true
