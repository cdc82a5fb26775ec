// Package file has the rows of a database on disk: a file of bbolt's, in which each table is a
// bucket, with a log in it. It opens and locks the file, verifies it page by page before bbolt sees
// it, and commits batches; it compacts, backs up, and recovers what is left of a damaged file. It
// knows no version of a row, and of what a row says only what a backup has.
//
// The README of the package store says where all of it is.
package file
