// Package arch has no code. Its tests keep the module in the shape that it was planned in: which
// package may import which, who may read a clock, that every rule number cited anywhere is one
// that the documents state, and what a declaration has to look like.
//
// Each check is a function from sources to findings, and has a test of its own that shows it
// fail on a source made for that.
package arch
