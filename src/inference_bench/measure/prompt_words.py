"""Which words is a made-up prompt of: common English ones, most of them a single token in most vocabularies.

In:   nothing
Out:  WORDS
Leaves out: which of them are one token at a given server (prompt_vocabulary)
Read next by: prompt_sources, prompt_vocabulary.
"""

from __future__ import annotations

from typing import Final

_WORD_LIST: Final = """
    time year people way day man thing woman life child world school state family student group country problem hand
    part place case week company system program question work government number night point home water room mother
    area money story fact month right study book eye job word business issue side kind head house service friend
    father power hour game line end member law car city community name president team minute idea body information
    back parent face level office door health person art war history party result change morning reason research
    moment air teacher force education foot boy age policy music process sense nation plan college interest
    experience effect use class control care field development role effort rate heart show leader light voice wife
    mind price report decision son view relationship town road arm difference value building action season society
    tax director position player record paper space ground form event matter center couple site project activity
    star table need court oil situation cost industry figure street image phone data picture practice piece land
    product doctor wall patient worker news test movie north love support technology step baby computer type
    attention film tree source organization hair look window evidence chance order middle beach summer winter spring
    river mountain forest ocean island bridge garden kitchen flower animal horse bird fish dog cat stone metal glass
    wood fire rain snow wind cloud earth moon sun sea lake valley desert farm village church market shop store bank
    hotel train plane ship boat bus wheel engine machine tool key box bag cup bottle plate bread milk tea coffee
    sugar salt fruit apple orange rice meat egg dinner lunch breakfast song dance paint letter page pen desk chair
    bed lamp clock mirror color red blue green white black brown yellow gold silver large small long short high low
    young old new good great little big early late hard soft warm cold fast slow deep wide strong weak rich poor
    clean dark bright quiet simple common public private local global social political economic natural human
    medical legal final main major single double open close true false free full empty ready safe easy
"""
WORDS: Final = tuple(_WORD_LIST.split())
