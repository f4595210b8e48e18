package search

// Stem is the analysis of a word without capitals.
var Stem = stem
