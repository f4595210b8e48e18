package search

// Stem is the analysis of a word without capitals.
var Stem = stem

// HashTerm is the hash by which the index knows a word.
var HashTerm = hashTerm
