// Package measure runs in turn what is to be compared, round by round, and judges the figures: the
// median has to meet a target, and the worst round to come near it.
package measure
