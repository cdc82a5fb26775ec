// Package callsite keeps where a program calls a function, in builds with the tag lockddebug. In
// others a Site takes no memory, and to make one takes no time.
package callsite
