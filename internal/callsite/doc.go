// Package callsite keeps where a program calls a function, in builds with the tag lockddebug. In
// other builds a Site takes no memory, and making one takes no time.
package callsite
