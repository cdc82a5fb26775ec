// Package arch has no code. Its tests keep the module in its planned shape: which package may
// import which, who may read a clock, that the documents state every rule number that is cited
// anywhere, and what a declaration has to look like. The last two hold for nested modules too.
//
// Each check is a function from sources to findings, and has a test of its own that shows it
// fail on a source made for that.
package arch
